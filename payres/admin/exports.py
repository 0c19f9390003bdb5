"""Exports: payments, the ledger and statements as files."""

from payres.admin.downloads import Download
from payres.admin.requests import ExportQuery, PeriodQuery
from payres.operator.exports import Ledger, Payments, Statement, period


def payments(query: ExportQuery) -> Download:
    """Export incoming and outgoing payments, oldest first."""
    wallet, since, until = query.wallet or None, query.from_ or None, query.to or None
    return Download("payments", Payments(*period(since, until), wallet), query.format)


def ledger(query: ExportQuery) -> Download:
    """Export every transfer of the ledger, oldest first, or those of the account of a wallet."""
    wallet, since, until = query.wallet or None, query.from_ or None, query.to or None
    return Download("ledger", Ledger(*period(since, until), wallet), query.format)


def statement(wallet: str, query: PeriodQuery) -> Download:
    """Export what went into a wallet and out of it, from the opening balance of a period to the closing one."""
    bounds = period(query.from_ or None, query.to or None)
    return Download(f"statement {wallet}", Statement(wallet, *bounds), query.format)
