"""What the pages show in tests: a little of everything, and texts that try to be more than text."""

from fractions import Fraction
from typing import Final, NamedTuple

from payres import ledger
from payres.amounts import Asset
from payres.interledger import balances
from payres.operator import api_keys, assets, keys, peers, wallets, webhooks
from payres.operator.peer_terms import NewPeer
from payres.payments.settlement import end_remote
from payres.signatures.jwk import jwk_from_public_bytes
from payres.store import clients, events
from payres.store.events import DELIVERIES, WEBHOOKS, DeliveryRecord
from payres.store.packets import PacketRecord
from payres.store.payments import OUTGOING
from payres.store.wallets import find_wallet
from payres.store.work import Work
from payres.terms import Path, Terms
from payres.testing.instance import Instance
from tests.works import sending_payment

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
    kid: str


def fill(instance: Instance) -> Seeded:
    """Payments, grants, keys, peers: each kind of thing once at least."""
    payment = _pay(instance)

    def unit(work: Work) -> tuple[str, str, str]:
        wallets.create_wallet(work, "savings/of-a-wallet-with-a-long-path", "EUR", 2, "W" * 100, None)
        wallets.deposit(work, "alice", "12345.67", f"bank {HOSTILE}"[:100].replace("\u202e", ""))
        wallets.withdraw(work, "alice", "5.00", FORMULA)
        assets.deposit_liquidity(work, "USD", 2, "1000.00")
        assets.deposit_liquidity(work, "EUR", 2, "500.00")
        assets.set_rate(work, "EUR", "USD", "1.08")
        keys.add_key(work, "alice", jwk_from_public_bytes("key-of-alice", bytes(range(32))), "Phone <b>of Alice</b>")
        _leave_undelivered(work, payment[1])
        key = api_keys.create_api_key(work, "Order book <i>", ["payments:read", "wallets:read"], None)
        return (*_give_up(work), key.id)

    failed, packet, api_key = instance.write(unit)
    asked = instance.client.request_grant(
        {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": instance.wallet("alice")}
    ).json()
    incoming, paid, grant = payment
    assert asked["interact"]
    return Seeded(incoming, paid, failed, packet, grant, api_key, "key-of-alice")


def _pay(instance: Instance) -> tuple[str, str, str]:
    """The ids of an incoming payment, the outgoing one that paid it, and the grant for that."""
    wanted = {"value": "2500", "assetCode": "USD", "assetScale": 2}
    metadata = {"description": HOSTILE, "order": 17}
    incoming = instance.client.create_incoming_payment(instance.wallet("bob"), wanted, metadata=metadata)
    limits = {"debitAmount": {"value": "10000", "assetCode": "USD", "assetScale": 2}}
    quote = instance.client.create_quote(instance.wallet("alice"), incoming["id"])
    paid = instance.client.create_outgoing_payment(instance.wallet("alice"), quote["id"], limits)
    paid_id = paid["id"].rpartition("/")[2]

    def unit(work: Work) -> str:
        found = OUTGOING.get(work, paid_id)
        assert found is not None
        assert found.grant_id is not None
        return found.grant_id

    return incoming["id"].rpartition("/")[2], paid_id, instance.read(unit)


def _leave_undelivered(work: Work, payment_id: str) -> None:
    """A webhook that is gone, which did not take the events of a payment."""
    webhook = webhooks.add(work, "https://hooks.example/" + "a-long-path/" * 5).webhook
    paid = OUTGOING.get(work, payment_id)
    assert paid is not None
    error = f"it answered 410 {HOSTILE}"
    for event in events.events_of(work, payment_id, [paid.created_at]):
        DELIVERIES.replace(work, DeliveryRecord(event.sequence, webhook.id, "failed", 12, None, work.now, 410, error))
    WEBHOOKS.update(work, webhook.id, state="disabled")


def _give_up(work: Work) -> tuple[str, str]:
    """A payment to another server that failed with a packet of unknown outcome; the ids of both."""
    wallet = find_wallet(work, "alice")
    assert wallet is not None
    new = NewPeer(
        name="second",
        ilp_address="g.second",
        asset_code="USD",
        asset_scale=2,
        url="https://pay.second.example/" + "a-long-path/" * 6 + "ilp",
        outgoing_token="shown",
        incoming_token="seen",
        credit_limit="1000.00",
        routes=("g.third", "g.fourth"),
    )
    peer = peers.add_peer(work, new)
    client = clients.ensure_client(work, "https://evil.example/<b>", "https://evil.example/<b>", None, work.now)
    terms = Terms(
        receiver=f"https://elsewhere.example/incoming-payments/{'long' * 20}?<script>",
        incoming_payment_id=None,
        debit=1000,
        fee=20,
        receive=800,
        asset=Asset("GBP", 2),
        path=Path(Fraction(9, 10), Fraction(91, 100), 1000),
    )
    payment_id, packet_id = work.new_id(), work.new_id()
    OUTGOING.insert(work, sending_payment(payment_id, wallet.id, client.id, work.now, terms, None))
    ledger.hold(work, wallet.account_id, 1000, outgoing_payment_id=payment_id)
    packet = PacketRecord(packet_id, peer.id, payment_id, None, None, 500, 500, b"prepare", work.now, "prepared")
    balances.prepare(work, packet, peer)
    balances.leave_unresolved(work, packet)
    payment = OUTGOING.get(work, payment_id)
    assert payment is not None
    end_remote(work, payment, f"the receiver said {HOSTILE}")
    return payment_id, packet_id
