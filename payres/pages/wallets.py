"""A wallet with its payments, the money in it, and the keys of its clients."""

from typing import Any, Final

from starlette.responses import Response

from payres.admin import payments, wallets
from payres.admin.requests import KeyQuery, PeriodQuery
from payres.operator.payments import PaymentQuery
from payres.pages.exports import fields
from payres.pages.lists import MOVEMENT_COLUMNS, NO_MOVEMENTS, PAYMENT_COLUMNS, WALLET
from payres.pages.peers import FEW
from payres.pages.tables import Cell, Column, facts_of, make_table, page_of
from payres.pages.visit import View, Visit
from payres.store.work import Work

FACTS: Final = (
    Column("Balance", "balance", "number"),
    Column("Reserved for payments in flight", "reserved", "number"),
    Column("Asset", lambda wallet: Cell(f"{wallet.asset_code}, {wallet.asset_scale} decimals")),
    Column("State", "state", "state"),
    Column("Name", "public_name"),
    Column("Wallet address", "wallet_address", "code"),
    Column("Owner", lambda wallet: Cell("can sign in" if wallet.can_sign_in else "has no password")),
    Column("Opened (UTC)", "created_at", "time"),
)
KEY_COLUMNS: Final = (
    Column("Name", "name", "long"),
    Column("Added (UTC)", "created_at", "time"),
    Column("State", lambda one: Cell("revoked" if one.revoked_at else "valid", "state")),
    Column("Revoked (UTC)", "revoked_at", "time"),
)
OWN_PAYMENT_COLUMNS: Final = [column for column in PAYMENT_COLUMNS if column is not WALLET]


@View
async def page(visit: Visit) -> Response:
    """The page of a wallet."""
    path = visit.segments["wallet"]

    def unit(work: Work) -> dict[str, Any]:
        keys = wallets.list_wallet_keys(work, path, KeyQuery(revoked=True)).result
        own = payments.list_page(work, FEW, PaymentQuery(wallet=path))
        movements = wallets.list_movements(work, path, FEW).result
        return {
            "wallet": wallets.show(work, path),
            "keys": make_table("Keys", [_key_id(path), *KEY_COLUMNS], keys, "No client signs for this wallet"),
            "payments": make_table("Payments", OWN_PAYMENT_COLUMNS, own.result, "There are no payments yet"),
            "movements": make_table("Deposits and withdrawals", MOVEMENT_COLUMNS, movements, NO_MOVEMENTS),
        }

    found = await visit.read(unit)
    wallet = found["wallet"]
    own = page_of("wallets", wallet.path)
    change = ("Deactivate", f"{own}/deactivate") if wallet.state == "active" else ("Activate", f"{own}/activate")
    return visit.show(
        "wallet.html",
        "/wallets",
        title=wallet.path,
        facts=facts_of(FACTS, wallet),
        own=own,
        actions=[("Deposit", f"{own}/deposit"), ("Withdraw", f"{own}/withdraw"), change],
        statement=fields(PeriodQuery),
        **found,
    )


def _key_id(path: str) -> Column:
    return Column("Key id", lambda one: Cell(one.kid, "code", page_of("wallets", path, "keys", one.kid)))
