"""Wallets: the list, one with its keys and the money in it, and its deposits and withdrawals."""

from typing import Any, Final

from starlette.responses import Response

from payres.admin import payments, wallets
from payres.admin.requests import KeyQuery, PaymentQuery, PeriodQuery
from payres.pages.exports import fields
from payres.pages.listing import Listing, page_for
from payres.pages.payments import COLUMNS as PAYMENT_COLUMNS
from payres.pages.tables import Cell, Column, linked, long, make_table, number, page_of, state, text, time
from payres.pages.visit import Page, Visit
from payres.store.pages import PageQuery
from payres.store.work import Work

FEW: Final = PageQuery(10, None, "older")
NO_MOVEMENTS: Final = "Nothing was deposited or withdrawn yet"

COLUMNS: Final = (
    Column("Wallet", lambda one: linked("wallets", one.path)),
    Column("Name", long("public_name")),
    Column("Balance", number("balance")),
    Column("Reserved", number("reserved")),
    Column("Asset", text("asset_code")),
    Column("State", state),
    Column("Opened (UTC)", time("created_at")),
)
MOVEMENT_COLUMNS: Final = (
    Column("Time (UTC)", time("created_at")),
    Column("What", text("kind")),
    Column("Amount", number("amount")),
    Column("Asset", text("asset_code")),
    Column("Reference", long("reference")),
)
KEY_COLUMNS: Final = (
    Column("Name", long("name")),
    Column("Added (UTC)", time("created_at")),
    Column("State", lambda one: Cell("revoked" if one.revoked_at else "valid", "state")),
    Column("Revoked (UTC)", time("revoked_at")),
)

OWN_PAYMENT_COLUMNS: Final = [column for column in PAYMENT_COLUMNS if column.heading != "Wallet"]

LIST: Final = page_for(
    Listing("Wallets", "wallets.list_page", COLUMNS, "There are no wallets yet; `payres wallet create` opens one")
)
MOVEMENTS: Final = page_for(
    Listing("Deposits and withdrawals of {wallet}", "wallets.list_movements", MOVEMENT_COLUMNS, NO_MOVEMENTS)
)


async def _show(visit: Visit) -> Response:
    path = visit.segments["wallet"]

    def unit(work: Work) -> dict[str, Any]:
        wallet = wallets.show(work, path)
        keys = wallets.list_wallet_keys(work, path, KeyQuery(revoked=True)).result
        own = payments.list_page(work, FEW, PaymentQuery(wallet=path))
        movements = wallets.list_movements(work, path, FEW).result
        return {
            "wallet": wallet,
            "keys": make_table("Keys", [_key_id(path), *KEY_COLUMNS], keys, "No client signs for this wallet"),
            "payments": make_table("Payments", OWN_PAYMENT_COLUMNS, own.result, "There are no payments yet"),
            "movements": make_table("Deposits and withdrawals", MOVEMENT_COLUMNS, movements, NO_MOVEMENTS),
        }

    found = await visit.read(unit)
    wallet = found["wallet"]
    facts = [
        ("Balance", Cell(wallet.balance, "number")),
        ("Reserved for payments in flight", Cell(wallet.reserved, "number")),
        ("Asset", Cell(f"{wallet.asset_code}, {wallet.asset_scale} decimals")),
        ("State", Cell(wallet.state, "state")),
        ("Name", Cell(wallet.public_name or "")),
        ("Wallet address", Cell(wallet.wallet_address, "code")),
        ("Owner", Cell("can sign in" if wallet.can_sign_in else "has no password")),
        ("Opened (UTC)", Cell(wallet.created_at, "time")),
    ]
    own = page_of("wallets", wallet.path)
    change = ("Deactivate", f"{own}/deactivate") if wallet.state == "active" else ("Activate", f"{own}/activate")
    actions = [("Deposit", f"{own}/deposit"), ("Withdraw", f"{own}/withdraw"), change]
    shown = {"title": wallet.path, "facts": facts, "own": own, "actions": actions, "statement": fields(PeriodQuery)}
    return visit.show("wallet.html", "/wallets", **shown, **found)


def _key_id(path: str) -> Column:
    return Column("Key id", lambda one: Cell(one.kid, "code", page_of("wallets", path, "keys", one.kid)))


PAGE: Final = Page(_show)
