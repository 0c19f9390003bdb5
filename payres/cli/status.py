"""`payres status`: what an operator looks at first, on one screen; and `payres ledger`: the invariant checks."""

from functools import partial

import click

from payres.cli.commands import Command, Group
from payres.cli.operations import shape_text
from payres.cli.session import Session, reads, with_session
from payres.operator import invariant_checks
from payres.operator.invariant_checks import Finding
from payres.operator.ledger import ledger_check
from payres.operator.status import STATUS, Status, read_status
from payres.store.connections import is_served
from payres.store.work import Work


@click.command(cls=Command, example="payres status")
@reads(lambda found: shape_text(STATUS, found))
def status(work: Work) -> Status:
    """It reads the database, and says whether a server has it; it asks no server.

    Balances are those of all wallets, of the liquidity and of the collected fees, by asset. `payres doctor` looks for
    what is wrong.
    """
    return read_status(work, is_running=is_served(work.settings.database))


@click.group(cls=Group)
def ledger() -> None:
    pass


@ledger.command(example="payres ledger check")
@with_session
def check(session: Session) -> None:
    """Check every invariant of the ledger.

    Reads one snapshot of the database while the server goes on serving. The exit code is 1 when an invariant is
    broken, and the first broken one is named.
    """
    at, findings = session.read(lambda work: (work.now, invariant_checks.check(work)))
    broken = invariant_checks.first_broken(findings)
    lines = (line for finding in findings for line in _lines(finding))
    session.show(ledger_check(findings), "\n".join(lines))
    session.write_if_possible(partial(invariant_checks.note, findings=findings, checked_at=at))
    if broken is not None:
        raise click.ClickException(f"The invariant `{broken.name}` is broken: {broken.breaches[0]}")


def _lines(finding: Finding) -> list[str]:
    if finding.holds:
        return [f"ok      {finding.name}: {finding.claim} ({finding.examined} {finding.unit})"]
    return [f"BROKEN  {finding.name}: it does not hold that {finding.claim}"] + [
        f"          {breach}" for breach in finding.breaches
    ]
