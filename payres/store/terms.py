"""The terms of quotes and outgoing payments as the columns of their tables."""

from typing import Any

from payres.amounts import Asset
from payres.store.rows import Embedded, Row
from payres.terms import Terms, decode_path, encode_path


def _read(row: Row) -> Terms:
    receiver, incoming_payment_id, debit, fee, receive, code, scale, path = row
    return Terms(
        receiver=receiver,
        incoming_payment_id=incoming_payment_id,
        debit=int(debit),
        fee=int(fee),
        receive=int(receive),
        asset=Asset(code, scale),
        path=None if path is None else decode_path(path),
    )


def _write(terms: Terms) -> tuple[Any, ...]:
    path = None if terms.path is None else encode_path(terms.path)
    amounts = (terms.debit, terms.fee, terms.receive)
    return (terms.receiver, terms.incoming_payment_id, *amounts, terms.asset.code, terms.asset.scale, path)


def _write_text(terms: Terms) -> tuple[Any, ...]:
    receiver, incoming_payment_id, debit, fee, receive, *others = _write(terms)
    return (receiver, incoming_payment_id, str(debit), str(fee), str(receive), *others)


_RECEIVER = ("receiver", "incoming_payment_id")
_ASSET_AND_PATH = ("receive_code", "receive_scale", "path")
# Of payments, whose amounts the ledger can move; and of quotes, which may be any unsigned 64-bit integers, as text.
TERMS = Embedded((*_RECEIVER, "debit", "fee", "receive", *_ASSET_AND_PATH), _read, _write)
TERMS_AS_TEXT = Embedded(
    (*_RECEIVER, "debit_value", "fee_value", "receive_value", *_ASSET_AND_PATH), _read, _write_text
)
