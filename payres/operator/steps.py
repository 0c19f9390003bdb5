"""Operations of more than one transaction, or with requests to other servers: they get a `call` instead of a unit of
work."""

from contextlib import suppress
from functools import partial
from typing import Annotated

from msgspec import Meta

from payres.core.http.requests import ActorRequest
from payres.core.protocol.errors import Unavailable
from payres.core.protocol.limits import MAX_PASSWORD_LENGTH, MIN_PASSWORD_LENGTH
from payres.core.protocol.wire import Body, List, Text
from payres.html.sign_in import PasswordGate
from payres.interledger.node import node_of
from payres.operator import api_keys, invariant_checks, payment_history, refunds, wallets, webhooks
from payres.operator.api import ApiCall
from payres.operator.api_keys import CreatedApiKey
from payres.operator.backup_schedule import make_in_folder
from payres.operator.backups import MadeBackup
from payres.operator.declarations import DecimalText, Name, Reference, TimeText, endpoint, form, said
from payres.operator.ledger import LedgerCheck, ledger_check
from payres.operator.payment_history import Refund
from payres.operator.payments import PAYMENT
from payres.operator.wallets import Wallet
from payres.operator.webhooks import Patterns, Private, Webhook, WebhookName, WebhookTest
from payres.webhooks.sender import Sender

KeyScopes = Annotated[list[str], Meta(min_length=1)]
Returned = Annotated[DecimalText | None, said("By default all that is left.")]
Receiver = Annotated[
    Text | None, said("Only for money that came from another server: the wallet address that it is sent to.")
]


class NewPassword(Body, frozen=True, kw_only=True):
    password: Annotated[str, Meta(min_length=MIN_PASSWORD_LENGTH, max_length=MAX_PASSWORD_LENGTH)]
    forget_browsers: bool = False

    def __repr__(self) -> str:
        return "NewPassword(...)"


@endpoint("PUT /wallets/{wallet}/password", "wallets:write", noun="steps")
async def set_password(call: ApiCall, wallet: str, new: NewPassword) -> Wallet:
    """Give a wallet's owner a new password. Browsers that are signed in must sign in again."""
    find = partial(call.read, partial(wallets.require_wallet, wallet=wallet))
    await find()
    hashed = await call.context.part(PasswordGate).hash(new.password, call.key.actor, find)
    change = partial(wallets.set_password, path=wallet, password_hash=hashed, forget_browsers=new.forget_browsers)
    return await call.write(lambda work: wallets.wallet(work, change(work)))


@endpoint("POST /api-keys", "keys:write", shows_secret=True, noun="steps")
async def create_api_key(
    call: ApiCall, name: Name, scopes: KeyScopes, expires_at: TimeText | None = None
) -> CreatedApiKey:
    """Create an API key, with no more scopes than one's own, which expires no later. The key is shown only here.

    It ends when one's own is revoked, unless that is done with `keepMade`.
    """
    key = (call.key, name, scopes, expires_at)
    return await call.write(lambda work: api_keys.create_key_with(work, *key))


@endpoint("POST /webhooks", "webhooks:write events:read", shows_secret=True, noun="steps")
async def add_webhook(
    call: ApiCall, url: Text, events: Patterns = (), private: Private = False, name: WebhookName | None = None
) -> Webhook:
    """Send events from now on to a URL. The secret for verifying signatures is shown only in this answer.

    Only keys with the scope webhooks:private may add one that is `private`.
    """
    if private:
        api_keys.require_scope(call.key, "webhooks:private")
    return await call.write(lambda work: webhooks.webhook(work, webhooks.add(work, url, events, private, name)))


@endpoint("POST /webhooks/{id}/tests", "webhooks:write", noun="steps")
async def test_webhook(call: ApiCall, id: str) -> WebhookTest:
    """Send the event webhook.test now, and return the answer of the endpoint."""
    event, target = await call.write(partial(webhooks.make_test, id=id))
    made = await call.context.part(Sender).send(target, event)
    await call.write(partial(webhooks.record_test, id=id, event=event, attempt=made))
    return WebhookTest(event=event.id, webhook=id, status=made.status, error=made.error)


@endpoint("POST /payments/{id}/refunds", "payments:refund", noun="steps")
@form(
    "/payments/{id}/refund",
    "Refund a payment",
    "Send it back",
    [
        "The amount leaves the wallet and goes back to the wallets here that paid it, the last one first.",
        "What came from another server goes to the wallet address that you name: ask who paid for it.",
    ],
    PAYMENT,
    is_over=lambda payment: payment.direction != "incoming",
    moves_money=True,
)
async def send_back(
    call: ActorRequest, id: str, amount: Returned = None, to: Receiver = None, *, reference: Reference
) -> List[Refund]:
    """Send back what an incoming payment received: to the wallets here that paid, or to a wallet address.

    Without an amount, all that is left. Money from wallets here goes back to them, with a refund for each payment.
    Money from another server goes to the wallet address in `to`, and is `sending` until it has arrived there. Repeating
    a request with the same reference does nothing.
    """
    wanted = refunds.WantedRefund(id, reference, amount, to)
    offer = await node_of(call.context).quotes.offer_for_refund(to, partial(refunds.plan_elsewhere, wanted=wanted))
    async with call.context.idempotency_slots.slot("refunds", id):  # each sees what the one before has sent back
        made = await payment_history.send_back(call, wanted, offer)
    node_of(call.context).payments.wake()
    return made


@endpoint("GET /ledger/check", "ledger:read", noun="steps")
async def check_ledger(call: ApiCall) -> LedgerCheck:
    """Check every invariant of the ledger, over one snapshot. This takes long if there are many payments."""
    at, findings = await call.read(lambda work: (work.now, invariant_checks.check(work)))
    with suppress(Unavailable):  # the findings can be shown all the same
        await call.write(partial(invariant_checks.note, findings=findings, checked_at=at))
    return ledger_check(findings)


@endpoint("POST /backups", "backup:write", noun="steps")
async def make_backup(call: ApiCall) -> MadeBackup:
    """Make a verified copy of the database in the directory of the setting backup_directory."""
    return await make_in_folder(call.context, call.write)
