"""SQL of the terms of quotes and payments, which both keep in columns of the same kind."""

from fractions import Fraction
from functools import lru_cache

import msgspec

from payres.core.protocol.amounts import Asset, ProbedPath, Terms
from payres.core.store.rows import Embedded, Row


class _PathColumn(msgspec.Struct, frozen=True):
    """The JSON in column `path`; rates are "n/d", and all numbers are text because they may be large."""

    low: str
    high: str
    max_packet: str
    sends_all: bool


_PATH = msgspec.json.Decoder(_PathColumn)


def _read(row: Row) -> Terms:
    receiver, incoming_payment_id, debit, fee, receive, code, scale, text = row
    path, sends_all = (None, False) if text is None else _read_path(text)
    return Terms(
        receiver=receiver,
        incoming_payment_id=incoming_payment_id,
        debit=int(debit),
        fee=int(fee),
        receive=int(receive),
        asset=Asset(code, scale),
        path=path,
        sends_all=sends_all,
    )


@lru_cache(maxsize=1024)
def _read_path(text: str) -> tuple[ProbedPath, bool]:
    """Cached: parsing fractions costs more than the rest of the row, and every packet reads its payment."""
    column = _PATH.decode(text)
    return ProbedPath(Fraction(column.low), Fraction(column.high), int(column.max_packet)), column.sends_all


def _write(terms: Terms) -> tuple[object, ...]:
    """Amounts are text, which integer columns convert; a quote's may be any unsigned 64-bit integer."""
    return (
        terms.receiver,
        terms.incoming_payment_id,
        *(str(terms.debit), str(terms.fee), str(terms.receive)),
        terms.asset.code,
        terms.asset.scale,
        None if terms.path is None else path_column(terms.path, sends_all=terms.sends_all),
    )


def path_column(path: ProbedPath, *, sends_all: bool) -> str:
    """What column `path` has for terms over this path."""
    column = _PathColumn(str(path.low), str(path.high), str(path.max_packet), sends_all)
    return msgspec.json.encode(column).decode()


def _terms(*amounts: str) -> Embedded:
    return Embedded(
        ("receiver", "incoming_payment_id", *amounts, "receive_code", "receive_scale", "path"), _read, _write
    )


TERMS = _terms("debit", "fee", "receive")  # of payments


TERMS_AS_TEXT = _terms("debit_value", "fee_value", "receive_value")
