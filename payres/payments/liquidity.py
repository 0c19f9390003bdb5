"""The operator's liquidity, which exchanges take from, and the accounts that run low."""

from collections.abc import Iterable

from payres import representations
from payres.amounts import Asset
from payres.errors import InsufficientFunds
from payres.event_types import LiquidityEvent, PeerEvent
from payres.ledger import free_balance
from payres.store import accounts, peers
from payres.store.accounts import AccountRecord
from payres.store.assets import ASSETS
from payres.store.work import Work


def check_liquidity(work: Work, asset_id: int, amount: int) -> None:
    """Raises InsufficientFunds when the operator has less than this amount of the asset to give in an exchange."""
    account = accounts.find_operator_account(work, asset_id, "liquidity")
    if account is None or free_balance(account) < amount:
        raise short_of_liquidity(amount, ASSETS.by_id(work, asset_id).asset)


def short_of_liquidity(amount: int, asset: Asset) -> InsufficientFunds:
    """The operator does not have this amount of the asset to give in an exchange."""
    sentence = f"This server cannot exchange {amount} into {asset.code} at the moment; try less or later"
    return InsufficientFunds(sentence, reason="liquidity")


def warn_of_low(work: Work, low: Iterable[AccountRecord]) -> None:
    """Writes an event for each account that a movement left low."""
    for account in low:
        asset = ASSETS.by_id(work, account.asset_id).asset
        left = representations.amount(free_balance(account), asset)
        peer = peers.peer_with_account(work, account.id)
        if peer is None:
            work.emit("liquidity.low", None, LiquidityEvent(left=left))
        else:
            limit = representations.amount(-peer.floor, asset)
            work.emit("peer.credit_low", None, PeerEvent(peer=peer.name, left=left, credit_limit=limit))
