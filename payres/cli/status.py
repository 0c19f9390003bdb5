"""`payres status`: what an operator looks at first, on one screen."""

import click

from payres.cli.commands import Command
from payres.cli.operations import shape_text
from payres.cli.session import reads
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
