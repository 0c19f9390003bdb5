"""The terms of quotes and outgoing payments as the columns of their tables."""

from fractions import Fraction
from typing import Any

import msgspec

from payres.amounts import Asset
from payres.store.rows import Embedded, Row
from payres.terms import Path, Terms


class _PathColumn(msgspec.Struct, frozen=True):
    """The column `path`, a JSON text; rates are "n/d", and all numbers are text because they may be large."""

    low: str
    high: str
    max_packet: str
    sends_all: bool

    @property
    def path(self) -> Path:
        return Path(Fraction(self.low), Fraction(self.high), int(self.max_packet))


_PATH = msgspec.json.Decoder(_PathColumn)


def _read(row: Row) -> Terms:
    receiver, incoming_payment_id, debit, fee, receive, code, scale, text = row
    column = None if text is None else _PATH.decode(text)
    return Terms(
        receiver=receiver,
        incoming_payment_id=incoming_payment_id,
        debit=int(debit),
        fee=int(fee),
        receive=int(receive),
        asset=Asset(code, scale),
        path=None if column is None else column.path,
        sends_all=column is not None and column.sends_all,
    )


def _write(terms: Terms) -> tuple[Any, ...]:
    path, text = terms.path, None
    if path is not None:
        column = _PathColumn(str(path.low), str(path.high), str(path.max_packet), terms.sends_all)
        text = msgspec.json.encode(column).decode()
    return (
        terms.receiver,
        terms.incoming_payment_id,
        terms.debit,
        terms.fee,
        terms.receive,
        terms.asset.code,
        terms.asset.scale,
        text,
    )


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
