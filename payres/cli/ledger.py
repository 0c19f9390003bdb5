"""`payres ledger`: the invariant checks."""

from functools import partial

import click

from payres.cli.commands import Group
from payres.cli.session import Session, with_session
from payres.operator import invariant_checks
from payres.operator.invariant_checks import Finding
from payres.operator.ledger import ledger_check


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
