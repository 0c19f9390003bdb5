"""What the pages show in tests: a little of everything, and texts that try to be more than text."""

import json
from fractions import Fraction
from typing import Any, Final, NamedTuple

import msgspec

from payres.core.payments import ledger
from payres.core.protocol.amounts import Asset, ProbedPath, Terms
from payres.core.signatures.jwk import jwk_from_public_bytes
from payres.core.store import clients
from payres.core.store.outgoing_payments import OUTGOING, OutgoingRecord
from payres.core.store.quotes import QUOTES, QuoteRecord
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.interledger import clearing
from payres.interledger.clearing import end_remote
from payres.interledger.store.packets import PacketRecord
from payres.operator import api_keys, assets, keys, wallets, webhooks
from payres.operator.store.events import events_of
from payres.webhooks.attempts import ToSend, note_attempts
from payres.webhooks.sender import Attempt
from payres.webhooks.store.webhooks import DELIVERIES, WEBHOOKS, DeliveryRecord
from tests.helpers import last_segment, usd
from tests.instance import Instance
from tests.works import add_usd_peer, sending_payment

HOSTILE: Final = "<script>alert(1)</script>'\"><img src=x onerror=alert(2)>\u202e"
FORMULA: Final = '=HYPERLINK("https://evil.example")'


class Seeded(NamedTuple):
    """Ids of what was made."""

    incoming: str
    outgoing: str
    failed: str
    packet: str
    grant: str
    api_key: str
    webhook: str
    kid: str
    pending: str = ""


def fill(instance: Instance) -> Seeded:
    """Payments, grants, keys, peers: each kind of thing once at least."""
    incoming, outgoing = _pay(instance)

    def unit(work: Work) -> Seeded:
        wallets.create_wallet(work, "savings/of-a-wallet-with-a-long-path", "EUR", 2, "W" * 100, None)
        wallets.deposit(work, "alice", "12345.67", f"bank {HOSTILE}"[:100].replace("\u202e", ""))
        wallets.withdraw(work, "alice", "5.00", FORMULA)
        assets.deposit_liquidity(work, "USD", 2, "1000.00")
        assets.deposit_liquidity(work, "EUR", 2, "500.00")
        assets.set_rate(work, "EUR", "USD", "1.08")
        keys.add_key(work, "alice", jwk_from_public_bytes("key-of-alice", bytes(range(32))), "Phone <b>of Alice</b>")
        paid = OUTGOING.by_id(work, outgoing)
        webhook = _leave_undelivered(work, paid)
        api_key = api_keys.create_api_key(work, "Order book <i>", ["payments:read", "wallets:read"], None)
        failed, packet = give_up(work)
        return Seeded(incoming, outgoing, failed, packet, paid.grant_id or "", api_key.id, webhook, "key-of-alice")

    seeded = instance.write(unit)
    asked = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": instance.wallet("alice")}
    assert instance.client.request_grant(asked).json()["interact"]
    [newest] = instance.read(lambda work: work.execute('SELECT max(id) FROM "grant"').fetchone())
    return seeded._replace(pending=newest)


def _pay(instance: Instance) -> tuple[str, str]:
    """The ids of an incoming payment, and of the outgoing one that paid it."""
    metadata = {"description": HOSTILE, "order": 17}
    incoming = instance.client.create_incoming_payment(instance.wallet("bob"), usd(2500), metadata=metadata)
    quote = instance.client.create_quote(instance.wallet("alice"), incoming["id"])
    limits = {"debitAmount": usd(10000)}
    paid = instance.client.create_outgoing_payment(instance.wallet("alice"), quote["id"], limits)
    return last_segment(incoming["id"]), last_segment(paid["id"])


def _leave_undelivered(work: Work, paid: OutgoingRecord) -> str:
    """The id of a webhook that is gone, which did not accept the events of a payment."""
    webhook = webhooks.add(work, "https://hooks.example/" + "a-long-path/" * 5).webhook
    error = f"it answered 410 {HOSTILE}"
    for event in events_of(work, paid.id, [paid.created_at]):
        DELIVERIES.replace(work, DeliveryRecord(event.sequence, webhook.id, "failed", 12, None, work.now, 410, error))
        attempt = Attempt(work.now, 410, error, 0, f"{HOSTILE}\n{'long' * 100}".encode(), 15_000)
        note_attempts(work, webhook.id, [(ToSend(event), attempt), (ToSend(event), Attempt(work.now, 204, None))])
    WEBHOOKS.update(work, webhook.id, state="disabled")
    return webhook.id


def fail_to_pay_frank(work: Work, note: str = "") -> str:
    """The id of a payment from alice to a wallet elsewhere, made by a form of its owner, that nobody answered."""
    wallet = require_wallet(work, "alice")
    client = clients.ensure_client(work, "https://own.example", "https://own.example", None, work.now)
    path = ProbedPath(Fraction(9, 10), Fraction(91, 100), 1000)
    receiver = f"https://tide.example/incoming-payments/{work.new_id()}"
    terms = Terms(
        receiver=receiver, incoming_payment_id=None, debit=1800, fee=0, receive=1799, asset=Asset("EUR", 2), path=path
    )
    wish = {"to": "tide.example/frank", "name": "Frank’s “Fish”", "address": "https://tide.example/frank"}
    kept = {**wish, "is_bill": True, "purpose": "Bill 2041-9"}
    quote = QuoteRecord(work.new_id(), wallet.id, client.id, terms, work.now, work.now + 1, None, json.dumps(kept))
    QUOTES.insert(work, quote)
    payment = msgspec.structs.replace(
        sending_payment(work.new_id(), wallet.id, client.id, work.now, terms, None),
        quote_id=quote.id,
        metadata=json.dumps({"description": note}),
    )
    OUTGOING.insert(work, payment)
    ledger.hold(work, wallet.account_id, 1800, outgoing_payment_id=payment.id)
    end_remote(work, OUTGOING.by_id(work, payment.id), "nobody answered")
    return payment.id


def give_up(work: Work) -> tuple[str, str]:
    """A payment to another server that failed with a packet of unknown outcome; the ids of both."""
    wallet = require_wallet(work, "alice")
    url = "https://pay.second.example/" + "a-long-path/" * 6 + "ilp"
    there: dict[str, Any] = {"ilp_address": "g.second", "url": url, "routes": ("g.third", "g.fourth")}
    peer = add_usd_peer(work, "second", "1000.00", outgoing_token="shown", incoming_token="seen", **there)
    client = clients.ensure_client(work, "https://evil.example/<b>", "https://evil.example/<b>", None, work.now)
    terms = Terms(
        receiver=f"https://elsewhere.example/incoming-payments/{'long' * 20}?<script>",
        incoming_payment_id=None,
        debit=1000,
        fee=20,
        receive=800,
        asset=Asset("GBP", 2),
        path=ProbedPath(Fraction(9, 10), Fraction(91, 100), 1000),
    )
    payment_id, packet_id = work.new_id(), work.new_id()
    OUTGOING.insert(work, sending_payment(payment_id, wallet.id, client.id, work.now, terms, None))
    ledger.hold(work, wallet.account_id, 1000, outgoing_payment_id=payment_id)
    packet = PacketRecord(packet_id, peer.id, payment_id, None, None, 500, 500, b"prepare", work.now, "prepared")
    clearing.prepare(work, packet, peer)
    clearing.leave_unresolved(work, packet)
    end_remote(work, OUTGOING.by_id(work, payment_id), f"the receiver said {HOSTILE}")
    return payment_id, packet_id
