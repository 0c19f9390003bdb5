"""What operators with the full role can do in the pages: the same functions as in the operator's API."""

from typing import Final, Literal

from payres.admin import api_keys, grants, payment_history, peers, representations, wallets, webhooks
from payres.admin.requests import KeyQuery, NewMovement, NewOutcome, NewReplay, WalletChange
from payres.errors import NotFound
from payres.limits import MAX_URL_LENGTH
from payres.operator.api_keys import require_api_key
from payres.operator.payments import require_payment
from payres.operator.shapes import Cell, Column, cell_of, facts_of, path_of
from payres.operator.unresolved_packets import require_unresolved
from payres.pages.actions import AMOUNT, REFERENCE, Action, Field, Segments, Subject, reference_of
from payres.pages.lists import CLIENT, CREATED, LEFT, SPENT, STATE, WALLET
from payres.pages.visit import Form, Visit
from payres.payments.refunds import Wanted, refund
from payres.store.work import Work
from payres.terms import Offer

BACK: Final = Field("amount", "Amount", "what is left if you leave it empty", False)
TO: Final = Field(
    "to", "Wallet address", "only for money that came from another server: where it shall go", False, MAX_URL_LENGTH
)
REASON: Final = Field(
    "reference", "Reference", "your own for it; under one reference, nothing is sent back twice", False
)


def _grant(work: Work, segments: Segments) -> Subject:
    grant = grants.show(work, segments["id"])
    facts = facts_of([CLIENT, STATE, SPENT, LEFT], grant)
    return Subject(facts, path_of("grants", grant.id), () if grant.ended_at else None)


GRANT: Final = Action(
    title="Revoke a grant",
    describe=_grant,
    will=["The grant and its tokens end at once, and cannot be brought back. What was paid stays paid."],
    do=lambda work, segments, _: grants.revoke(work, segments["id"]),
    choices={"revoke": "Revoke the grant"},
)

API_KEY_FACTS: Final = (
    Column("Name", "name"),
    STATE,
    Column("Scopes", "scopes", "code"),
    Column("Key", "id", "code"),
    CREATED,
    Column("Last used (UTC)", "last_used_at", "time"),
)


def _api_key(work: Work, segments: Segments) -> Subject:
    key = representations.api_key(work, require_api_key(work, segments["id"]))
    return Subject(facts_of(API_KEY_FACTS, key), "/admin/api-keys", () if key.revoked_at else None)


API_KEY: Final = Action(
    title="API key",
    describe=_api_key,
    will=["Requests with this key are refused from now on. It cannot be brought back."],
    do=lambda work, segments, _: api_keys.revoke(work, segments["id"]),
    choices={"revoke": "Revoke the key"},
)


def _wallet_key(work: Work, segments: Segments) -> Subject:
    path, kid = segments["wallet"], segments["kid"]
    keys = wallets.list_wallet_keys(work, path, KeyQuery(revoked=True)).result
    found = [one for one in keys if one.kid == kid]
    if not found:
        raise NotFound(f"The wallet {path} has no key {kid}")
    key = found[-1]  # a kid may come back after it was revoked
    facts = [
        ("Key id", Cell(key.kid, "code")),
        ("Wallet", cell_of(path, "long", "wallets")),
        ("Name", cell_of(key.name)),
        ("State", Cell("revoked" if key.revoked_at else "valid", "state")),
        ("Public key", Cell(key.jwk.x, "code")),
        ("Added (UTC)", cell_of(key.created_at, "time")),
        ("Revoked (UTC)", cell_of(key.revoked_at, "time")),
    ]
    return Subject(facts, path_of("wallets", path), () if key.revoked_at else None)


WALLET_KEY: Final = Action(
    title="Key of a client",
    describe=_wallet_key,
    will=["What is signed with this key is refused from now on. It is no longer served in jwks.json."],
    do=lambda work, segments, _: wallets.revoke_key(work, segments["wallet"], segments["kid"]),
    choices={"revoke": "Revoke the key"},
)

WALLET_FACTS: Final = (
    Column("Wallet", "path", "long", section="wallets"),
    Column("Name", "public_name"),
    STATE,
    Column("Balance", lambda wallet: Cell(f"{wallet.balance} {wallet.asset_code}", "number")),
    Column("Reserved", lambda wallet: Cell(f"{wallet.reserved} {wallet.asset_code}", "number")),
)


def _wallet(work: Work, segments: Segments) -> Subject:
    wallet = wallets.show(work, segments["wallet"])
    return Subject(facts_of(WALLET_FACTS, wallet), path_of("wallets", wallet.path))


def _movement(form: Form) -> NewMovement:
    return NewMovement(amount=form.get("amount", ""), reference=reference_of(form))


DEACTIVATION: Final = Action(
    title="Deactivate a wallet",
    describe=_wallet,
    will=["Its wallet address is taken off the net: no payment in or out can begin. Money and history stay."],
    do=lambda work, segments, _: wallets.change(work, segments["wallet"], WalletChange(state="inactive")),
    choices={"deactivate": "Deactivate the wallet"},
)
ACTIVATION: Final = Action(
    title="Activate a wallet",
    describe=_wallet,
    will=["Its wallet address is put back on the net, and payments can begin again."],
    do=lambda work, segments, _: wallets.change(work, segments["wallet"], WalletChange(state="active")),
    choices={"activate": "Activate the wallet"},
)
DEPOSIT: Final = Action(
    title="Deposit into a wallet",
    describe=_wallet,
    will=["The amount is added to the balance, as money that has come from outside. Record only what has really come."],
    do=lambda work, segments, form: wallets.deposit(work, segments["wallet"], _movement(form)),
    choices={"deposit": "Deposit"},
    fields=[AMOUNT, REFERENCE],
    moves_money=True,
)
WITHDRAWAL: Final = Action(
    title="Withdraw from a wallet",
    describe=_wallet,
    will=["The amount is taken out of the balance, as money that has gone outside."],
    do=lambda work, segments, form: wallets.withdraw(work, segments["wallet"], _movement(form)),
    choices={"withdraw": "Withdraw"},
    fields=[AMOUNT, REFERENCE],
    moves_money=True,
)

PACKET_FACTS: Final = (
    Column("Packet", "id", "code"),
    Column("Peer", "peer", "long", section="peers"),
    Column("Payment", "payment", "code", section="payments"),
    WALLET,
    Column("Amount", lambda one: Cell(f"{one.amount} {one.asset_code}", "number")),
    Column("Expired (UTC)", "expired_at", "time"),
)


def _packet(work: Work, segments: Segments) -> Subject:
    one = representations.unresolved_packet(require_unresolved(work, segments["id"]))
    will = [
        "Ask the operator of the peer first what became of the packet; this cannot be taken back.",
        f"Delivered: the peer is owed {one.amount} {one.asset_code}, which is paid out of your liquidity.",
        "Returned: nothing is owed, and the grant of the payment gets back what it had counted for it.",
    ]
    return Subject(facts_of(PACKET_FACTS, one), path_of("peers", one.peer), will)


def _resolve(work: Work, segments: Segments, form: Form) -> object:
    outcome: Literal["delivered", "returned"] = "delivered" if form["choice"] == "delivered" else "returned"
    return peers.resolve(work, segments["id"], NewOutcome(outcome=outcome))


PACKET: Final = Action(
    title="Resolve a packet",
    describe=_packet,
    do=_resolve,
    choices={"delivered": "It was delivered", "returned": "It came back"},
    moves_money=True,
    question="What became of it?",
)

REFUND_FACTS: Final = (
    Column("Payment", "id", "code", section="payments"),
    WALLET,
    Column("Received", lambda payment: Cell(f"{payment.moved} {payment.asset_code}", "number")),
    Column("Sent back", lambda payment: Cell(f"{payment.refunded} {payment.asset_code}", "number")),
)


def _received(work: Work, segments: Segments) -> Subject:
    payment = payment_history.payment(work, require_payment(work, segments["id"]))
    will = None if payment.direction == "incoming" else ()
    return Subject(facts_of(REFUND_FACTS, payment), path_of("payments", payment.id), will)


def _wanted_refund(segments: Segments, form: Form) -> Wanted:
    return Wanted(segments["id"], reference_of(form), form.get("amount") or None, form.get("to") or None)


async def _find_offer(visit: Visit, form: Form) -> Offer | None:
    return await visit.context.remote_quotes.offer_for_refund(_wanted_refund(visit.segments, form))


def _refund(work: Work, segments: Segments, form: Form, offer: Offer | None) -> object:
    return refund(work, _wanted_refund(segments, form), offer)


REFUND: Final = Action(
    title="Refund a payment",
    describe=_received,
    will=[
        "The amount leaves the wallet and goes back to the wallets here that paid it, the last one first.",
        "What came from another server goes to the wallet address that you name: ask who paid for it.",
    ],
    do=_refund,
    choices={"refund": "Send it back"},
    fields=[BACK, TO, REASON],
    moves_money=True,
    prepare=_find_offer,
    on_done=lambda visit: visit.context.remote_payments.wake(),
)

WEBHOOK_FACTS: Final = (
    Column("Webhook", "id", "code"),
    Column("URL", "url", "code"),
    STATE,
    Column("Last error", "last_error"),
)

WEBHOOK: Final = Action(
    title="Webhook",
    describe=lambda work, segments: Subject(
        facts_of(WEBHOOK_FACTS, webhooks.show(work, segments["id"])), "/admin/webhooks"
    ),
    will=["Each event that has failed for this webhook is sent again."],
    do=lambda work, segments, _: webhooks.replay(work, NewReplay(failed=True, webhook=segments["id"])),
    choices={"replay": "Send it again"},
)
