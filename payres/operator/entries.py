"""Accounts of the ledger by their names."""

from payres.errors import InvalidRequest, NotFound
from payres.operator.assets import require_asset
from payres.operator.peers import require_peer
from payres.operator.wallets import require_wallet
from payres.store import accounts
from payres.store.work import Work


def find_account(work: Work, name: str) -> int:
    """The id of an account such as `wallet alice`, `peer second` or `liquidity USD 2`.

    Raises NotFound, InvalidRequest for another kind of name.
    """
    kind, _, whose = name.partition(" ")
    if kind == "wallet":
        return require_wallet(work, whose).account_id
    if kind == "peer":
        return require_peer(work, whose).account_id
    code, _, scale = whose.rpartition(" ")
    if kind not in {"liquidity", "fees", "external"} or not (scale.isascii() and scale.isdigit() and len(scale) <= 3):
        raise InvalidRequest(
            f"{name!r} names no account: write `wallet alice`, `peer second`, `liquidity USD 2`, `fees USD 2` or"
            " `external USD 2`",
            field="account",
        )
    found = accounts.find_operator_account(work, require_asset(work, code, int(scale)).id, kind)
    if found is None:
        raise NotFound(f"The account {name} was not used yet")
    return found.id
