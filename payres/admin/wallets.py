"""Wallets and the money in them."""

from payres.admin import representations
from payres.admin.wire import Movement, NewMovement
from payres.operator import wallets
from payres.store.movements import MovementRecord
from payres.store.work import Work


def deposit(work: Work, wallet: str, body: NewMovement) -> Movement:
    """Move money from the world outside into a wallet."""
    return _shown(work, wallet, wallets.deposit(work, wallet, body.amount, body.reference))


def withdraw(work: Work, wallet: str, body: NewMovement) -> Movement:
    """Move money out of a wallet."""
    return _shown(work, wallet, wallets.withdraw(work, wallet, body.amount, body.reference))


def _shown(work: Work, wallet: str, record: MovementRecord) -> Movement:
    return representations.movement(record, wallets.require_wallet(work, wallet).asset)
