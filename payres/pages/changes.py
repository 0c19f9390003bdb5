"""What operators with the full role can do in the pages: the same functions as in the operator's API."""

from typing import Final, Literal

from payres.admin import api_keys, grants, payments, peers, representations, wallets
from payres.admin.requests import KeyQuery, NewMovement, NewOutcome, WalletChange
from payres.admin.wire import Wallet
from payres.errors import NotFound
from payres.limits import MAX_URL_LENGTH
from payres.operator.refunds import Wanted, refund
from payres.operator.unresolved_packets import require_unresolved
from payres.pages.actions import AMOUNT, REFERENCE, Action, Field, Segments, Summary, page_for, reference_of
from payres.pages.grants import client_cell, left_cell, spent_cell
from payres.pages.tables import Cell, linked, page_of
from payres.pages.visit import Form, Visit
from payres.store.api_keys import find_api_key
from payres.store.work import Work
from payres.terms import Offer

BACK: Final = Field("amount", "Amount", "what is left if you leave it empty", False)
TO: Final = Field(
    "to", "Wallet address", "only for money that came from another server: where it shall go", False, MAX_URL_LENGTH
)
REASON: Final = Field(
    "reference", "Reference", "your own for it; under one reference, nothing is sent back twice", False
)


def _describe_grant(work: Work, segments: Segments) -> Summary:
    grant = grants.show(work, segments["id"])
    facts = [
        ("Client", client_cell(grant)),
        ("State", Cell(grant.state, "state")),
        ("Spent", spent_cell(grant)),
        ("Left", left_cell(grant)),
    ]
    will = ["The grant and its tokens end at once, and cannot be brought back. What was paid stays paid."]
    return Summary("Revoke a grant", facts, [] if grant.ended_at else will, page_of("grants", grant.id))


def _describe_api_key(work: Work, segments: Segments) -> Summary:
    record = find_api_key(work, segments["id"])
    if record is None:
        raise NotFound("There is no such API key; `payres api-key list` shows all")
    key = representations.api_key(work, record)
    facts = [
        ("Name", Cell(key.name)),
        ("State", Cell(key.state, "state")),
        ("Scopes", Cell(" ".join(key.scopes), "code")),
        ("Key", Cell(key.id, "code")),
        ("Created (UTC)", Cell(key.created_at, "time")),
        ("Last used (UTC)", Cell(key.last_used_at or "", "time")),
    ]
    will = ["Requests with this key are refused from now on. It cannot be brought back."]
    return Summary("API key", facts, [] if key.revoked_at else will, "/admin/api-keys")


def _describe_wallet_key(work: Work, segments: Segments) -> Summary:
    path, kid = segments["wallet"], segments["kid"]
    keys = wallets.list_wallet_keys(work, path, KeyQuery(revoked=True)).result
    found = [one for one in keys if one.kid == kid]
    if not found:
        raise NotFound(f"The wallet {path} has no key {kid}")
    key = found[-1]  # a kid may come back after it was revoked
    facts = [
        ("Key id", Cell(key.kid, "code")),
        ("Wallet", linked("wallets", path)),
        ("Name", Cell(key.name or "")),
        ("State", Cell("revoked" if key.revoked_at else "valid", "state")),
        ("Public key", Cell(key.jwk.x, "code")),
        ("Added (UTC)", Cell(key.created_at, "time")),
        ("Revoked (UTC)", Cell(key.revoked_at or "", "time")),
    ]
    will = ["What is signed with this key is refused from now on. It is no longer served in jwks.json."]
    return Summary("Key of a client", facts, [] if key.revoked_at else will, page_of("wallets", path))


def _describe_wallet(title: str, work: Work, segments: Segments, *will: str) -> Summary:
    wallet = wallets.show(work, segments["wallet"])
    return Summary(title, _wallet_facts(wallet), will, page_of("wallets", wallet.path))


def _wallet_facts(wallet: Wallet) -> list[tuple[str, Cell]]:
    return [
        ("Wallet", linked("wallets", wallet.path)),
        ("Name", Cell(wallet.public_name or "")),
        ("State", Cell(wallet.state, "state")),
        ("Balance", Cell(f"{wallet.balance} {wallet.asset_code}", "number")),
        ("Reserved", Cell(f"{wallet.reserved} {wallet.asset_code}", "number")),
    ]


def _describe_deactivation(work: Work, segments: Segments) -> Summary:
    will = "Its wallet address is taken off the net: no payment in or out can begin. Money and history stay."
    return _describe_wallet("Deactivate a wallet", work, segments, will)


def _describe_activation(work: Work, segments: Segments) -> Summary:
    will = "Its wallet address is put back on the net, and payments can begin again."
    return _describe_wallet("Activate a wallet", work, segments, will)


def _describe_deposit(work: Work, segments: Segments) -> Summary:
    will = "The amount is added to the balance, as money that has come from outside. Record only what has really come."
    return _describe_wallet("Deposit into a wallet", work, segments, will)


def _describe_withdrawal(work: Work, segments: Segments) -> Summary:
    will = "The amount is taken out of the balance, as money that has gone outside."
    return _describe_wallet("Withdraw from a wallet", work, segments, will)


def _movement(form: Form) -> NewMovement:
    return NewMovement(amount=form.get("amount", ""), reference=reference_of(form))


def _describe_packet(work: Work, segments: Segments) -> Summary:
    one = representations.unresolved_packet(require_unresolved(work, segments["id"]))
    amount = f"{one.amount} {one.asset_code}"
    facts = [
        ("Packet", Cell(one.id, "code")),
        ("Peer", linked("peers", one.peer)),
        ("Payment", linked("payments", one.payment, "code")),
        ("Wallet", linked("wallets", one.wallet)),
        ("Amount", Cell(amount, "number")),
        ("Expired (UTC)", Cell(one.expired_at, "time")),
    ]
    will = [
        "Ask the operator of the peer first what became of the packet; this cannot be taken back.",
        f"Delivered: the peer is owed {amount}, which is paid out of your liquidity.",
        "Returned: nothing is owed, and the grant of the payment gets back what it had counted for it.",
    ]
    return Summary("Resolve a packet", facts, will, page_of("peers", one.peer))


def _resolve(work: Work, segments: Segments, form: Form) -> object:
    outcome: Literal["delivered", "returned"] = "delivered" if form["choice"] == "delivered" else "returned"
    return peers.resolve(work, segments["id"], NewOutcome(outcome=outcome))


def _describe_refund(work: Work, segments: Segments) -> Summary:
    payment = payments.show(work, segments["id"]).payment
    facts = [
        ("Payment", linked("payments", payment.id, "code")),
        ("Wallet", linked("wallets", payment.wallet)),
        ("Received", Cell(f"{payment.moved} {payment.asset_code}", "number")),
        ("Sent back", Cell(f"{payment.refunded} {payment.asset_code}", "number")),
    ]
    will = [
        "The amount leaves the wallet and goes back to the wallets here that paid it, the last one first.",
        "What came from another server goes to the wallet address that you name: ask who paid for it.",
    ]
    is_incoming = payment.direction == "incoming"
    return Summary("Refund a payment", facts, will if is_incoming else [], page_of("payments", payment.id))


def _wanted_refund(segments: Segments, form: Form) -> Wanted:
    return Wanted(segments["id"], reference_of(form), form.get("amount") or None, form.get("to") or None)


async def _find_offer(visit: Visit, form: Form) -> Offer | None:
    return await visit.context.remote_refunds.find_offer(_wanted_refund(visit.segments, form))


def _refund(work: Work, segments: Segments, form: Form, offer: Offer | None) -> object:
    return refund(work, _wanted_refund(segments, form), offer)


GRANT: Final = page_for(
    Action(
        _describe_grant, lambda work, segments, _: grants.revoke(work, segments["id"]), {"revoke": "Revoke the grant"}
    )
)
API_KEY: Final = page_for(
    Action(
        _describe_api_key, lambda work, segments, _: api_keys.revoke(work, segments["id"]), {"revoke": "Revoke the key"}
    )
)
WALLET_KEY: Final = page_for(
    Action(
        _describe_wallet_key,
        lambda work, segments, _: wallets.revoke_key(work, segments["wallet"], segments["kid"]),
        {"revoke": "Revoke the key"},
    )
)
DEACTIVATION: Final = page_for(
    Action(
        _describe_deactivation,
        lambda work, segments, _: wallets.change(work, segments["wallet"], WalletChange(state="inactive")),
        {"deactivate": "Deactivate the wallet"},
    )
)
ACTIVATION: Final = page_for(
    Action(
        _describe_activation,
        lambda work, segments, _: wallets.change(work, segments["wallet"], WalletChange(state="active")),
        {"activate": "Activate the wallet"},
    )
)
DEPOSIT: Final = page_for(
    Action(
        _describe_deposit,
        lambda work, segments, form: wallets.deposit(work, segments["wallet"], _movement(form)),
        {"deposit": "Deposit"},
        (AMOUNT, REFERENCE),
        moves_money=True,
    )
)
WITHDRAWAL: Final = page_for(
    Action(
        _describe_withdrawal,
        lambda work, segments, form: wallets.withdraw(work, segments["wallet"], _movement(form)),
        {"withdraw": "Withdraw"},
        (AMOUNT, REFERENCE),
        moves_money=True,
    )
)
PACKET: Final = page_for(
    Action(
        _describe_packet,
        _resolve,
        {"delivered": "It was delivered", "returned": "It came back"},
        moves_money=True,
        question="What became of it?",
    )
)
REFUND: Final = page_for(
    Action(
        _describe_refund,
        _refund,
        {"refund": "Send it back"},
        (BACK, TO, REASON),
        moves_money=True,
        prepare=_find_offer,
    )
)
