"""`payres status`, an overview."""

import click

from payres.cli.commands import Command
from payres.cli.session import Session, with_session
from payres.core.protocol.clock import times_in_words
from payres.core.store.connections import is_served
from payres.operator.upkeep.status import STATUS, read_status


@click.command(cls=Command, example="payres status")
@with_session
def status(session: Session) -> None:
    """It reads the database, and says whether a server runs on it; it sends no requests.

    Balances are the totals of wallets, liquidity and collected fees, by asset. `payres doctor` looks for problems.
    """
    found = session.read(lambda work: read_status(work, is_running=is_served(work.settings.database)))
    session.show(found, times_in_words(STATUS.text(found)))
