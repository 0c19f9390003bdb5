"""`payres status` for an overview, `payres doctor` for problems."""

import re
from typing import Final

import click

from payres.cli.commands import Command
from payres.cli.session import Session, with_session
from payres.core.store.connections import is_served
from payres.operator.upkeep.doctor import Diagnosis, examine_all
from payres.operator.upkeep.status import STATUS, read_status

TIME: Final = re.compile(r"(?<![^\s(])([0-9]{4}(?:-[0-9]{2}){2})T([0-9]{2}:[0-9]{2}):[0-9.]+Z(?![^\s,:;)])")


def _times_in_words(text: str) -> str:
    return TIME.sub(r"\1 \2 UTC", text)


@click.command(cls=Command, example="payres status")
@with_session
def status(session: Session) -> None:
    """It reads the database, and says whether a server runs on it; it sends no requests.

    Balances are the totals of wallets, liquidity and collected fees, by asset. `payres doctor` looks for problems.
    """
    found = session.read(lambda work: read_status(work, is_running=is_served(work.settings.database)))
    session.show(found, _times_in_words(STATUS.text(found)))


@click.command(cls=Command, example="payres doctor")
@with_session
def doctor(session: Session) -> None:
    """It checks the files, the money and the links in the database, the server on this machine, and its public address
    as clients see it: TLS, redirects, the clock; and whether the servers of peers answer. The exit code is 1 if
    something should be fixed (FIX); warnings (WARN) leave it at 0."""
    findings = examine_all(session.read, session.environment, is_standby=session.is_standby)
    bad = [finding for finding in findings if finding.fix is not None and not finding.warning]
    shown = [{"subject": one.subject, "seen": one.seen, "fix": one.fix, "warning": one.warning} for one in findings]
    session.show({"ok": not bad, "findings": shown}, _times_in_words("\n".join(map(_line, findings))))
    if bad:
        raise SystemExit(1)


def _line(one: Diagnosis) -> str:
    kind = "ok  " if one.fix is None else "WARN" if one.warning else "FIX "
    return f"{kind} {one.subject}: {one.seen}" + ("" if one.fix is None else f"\n     {one.fix}")
