"""The purge of quotes: unused ones are deleted a day after they have expired, used ones stay."""

import pytest

from payres.clock import DAY, HOUR, SECOND
from payres.errors import DomainError
from payres.grants import clients
from payres.grants.access import Caller
from payres.grants.clients import Client
from payres.grants.gnap import OutgoingPaymentAccess
from payres.operator import wallets
from payres.payments import incoming, outgoing, quotes
from payres.settings import Settings
from payres.signatures.jwk import encode_jwk, generate_private_key, jwk_from_public_bytes
from payres.store import retention
from payres.store.grants import GRANTS
from payres.store.quotes import QUOTES, QuoteRecord
from payres.store.retention import UNUSED_CLIENT, UNUSED_QUOTE, purge
from payres.store.work import Transaction, Work
from payres.testing.instance import Instance, run_instance
from payres.urls import Urls
from payres.wire import Amount, IncomingPaymentRequest, OutgoingPaymentRequest, QuoteRequest
from tests.conftest import Refused
from tests.works import NOW, work_at

START = NOW
HOLDS = 300
SETTINGS = Settings(
    base_url="http://h", quote_lifetime=HOLDS, interaction_lifetime=HOLDS, incoming_payment_lifetime=1000 * 86400
)
URLS = Urls(SETTINGS.base_url)
KEY = encode_jwk(jwk_from_public_bytes("key", generate_private_key().public_key().public_bytes_raw()))


@pytest.fixture(autouse=True)
def books(tx: Work) -> None:
    for name in ("alice", "bob"):
        wallets.create_wallet(tx, name, "USD", 2, None, None)
    wallets.deposit(tx, "alice", "1000.00")


def caller(client_id: int, grant_id: str = "grant", wallet_address: str = "http://h/alice") -> Caller:
    access = OutgoingPaymentAccess(actions=["create"], identifier="http://h/alice")
    return Caller(client_id, grant_id, "token", "create", (access,), wallet_address=wallet_address)


@pytest.fixture
def receiver(tx: Transaction) -> str:
    """An incoming payment of bob that is open for years."""
    work = work_at(tx, START, SETTINGS)
    maker = clients.remember(work, Client("shop", "http://h/bob", None)).id
    into_bob = caller(maker, wallet_address="http://h/bob")
    return incoming.create(work, into_bob, IncomingPaymentRequest(wallet_address="http://h/bob")).id


def client_of(tx: Transaction, number: int, now: int) -> int:
    return clients.remember(work_at(tx, now), Client(f"thumbprint-{number}", None, KEY)).id


def quote(tx: Transaction, receiver: str, client_id: int, now: int) -> QuoteRecord:
    debit = Amount(value="5", asset_code="USD", asset_scale=2)
    asked = QuoteRequest(wallet_address="http://h/alice", receiver=receiver, method="ilp", debit_amount=debit)
    return quotes.create(work_at(tx, now, SETTINGS), caller(client_id), asked, None)[1]


def pay(tx: Transaction, made: QuoteRecord, now: int) -> str:
    """The id of a payment of the quote."""
    work = work_at(tx, now, SETTINGS)
    grant_id = work.new_id()
    tx.execute(
        'INSERT INTO "grant" (id, client_id, state, access, continue_hash, waits_from, created_at)'
        " VALUES (?, ?, 'issued', '[]', x'', 0, 0)",
        (grant_id, made.client_id),
    )
    asked = OutgoingPaymentRequest(wallet_address="http://h/alice", quote_id=URLS.resource("quotes", made.id))
    return outgoing.create(work, caller(made.client_id, grant_id), asked, None).id.rpartition("/")[2]


def ids(tx: Transaction) -> list[str]:
    return [quote_id for (quote_id,) in tx.execute("SELECT id FROM quote ORDER BY id")]


def purge_all(tx: Transaction, now: int) -> None:
    for _ in range(50):
        purge(tx, retention.QUOTES, now)
        purge(tx, retention.CLIENTS, now)


def test_quotes_of_unauthenticated_clients_are_bounded(tx: Transaction, receiver: str) -> None:
    """Two fresh keys an hour, with a quote each, for twelve days."""
    now, seen = START, []
    for number in range(24 * 12):
        now += HOUR
        for key in (2 * number, 2 * number + 1):
            quote(tx, receiver, client_of(tx, key, now), now)
        counts = [tx.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("quote", "client")]
        seen.append(max(counts))
    assert 24 < max(seen) <= 2 * (24 + 2) + 1
    assert tx.execute("PRAGMA foreign_key_check").fetchall() == []


def test_old_quotes_go_a_few_at_a_time_and_faster_than_new_ones_come(tx: Transaction, receiver: str) -> None:
    client_id = client_of(tx, 1, START)
    for _ in range(20):
        quote(tx, receiver, client_id, START)
    later = START + HOLDS * SECOND + UNUSED_QUOTE
    for number in range(1, 11):
        quote(tx, receiver, client_id, later)
        assert len(ids(tx)) == 20 - 2 * number + number


def test_quote_that_was_not_used_goes_a_day_after_it_expired(tx: Transaction, receiver: str) -> None:
    made = quote(tx, receiver, client_of(tx, 1, START), START)
    purge(tx, retention.QUOTES, made.expires_at + DAY - 1)
    assert QUOTES.get(tx, made.id) == made
    purge(tx, retention.QUOTES, made.expires_at + DAY)
    assert QUOTES.get(tx, made.id) is None


def test_quote_outlasts_the_answer_that_is_given_again_under_its_key() -> None:
    assert retention.RESPONSES.after <= UNUSED_QUOTE


def test_quote_of_a_payment_stays_and_is_looked_at_once(tx: Transaction, receiver: str) -> None:
    client_id = client_of(tx, 1, START)
    used, unused = (quote(tx, receiver, client_id, START) for _ in range(2))
    payment_id = pay(tx, used, START + SECOND)
    purge_all(tx, START + 10 * DAY)
    assert ids(tx) == [used.id]
    assert tx.execute("SELECT purge_at FROM quote").fetchall() == [(None,)]
    assert tx.execute("SELECT id, quote_id FROM outgoing_payment").fetchall() == [(payment_id, used.id)]
    with pytest.raises(DomainError, match="not a quote of this client"):
        pay(tx, unused, START + 10 * DAY)
    with pytest.raises(DomainError, match="has been used"):
        pay(tx, used, START + 10 * DAY)


def test_client_goes_with_its_last_quote(tx: Transaction, receiver: str) -> None:
    client_id = client_of(tx, 1, START)
    quote(tx, receiver, client_id, START)
    purge(tx, retention.CLIENTS, START + UNUSED_CLIENT)
    assert tx.execute("SELECT purge_at FROM client WHERE id = ?", (client_id,)).fetchone() == (None,)
    purge(tx, retention.QUOTES, START + HOLDS * SECOND + UNUSED_QUOTE)
    assert tx.execute("SELECT 1 FROM client WHERE id = ?", (client_id,)).fetchone() is None


def test_client_that_may_come_back_stays(tx: Transaction, receiver: str) -> None:
    client_id = client_of(tx, 1, START)
    quote(tx, receiver, client_id, START)
    tx.execute(
        'INSERT INTO "grant" (id, client_id, state, access, continue_hash, waits_from, created_at)'
        " VALUES ('g', ?, 'issued', '[]', x'', 0, 0)",
        (client_id,),
    )
    purge_all(tx, START + 10 * DAY)
    assert ids(tx) == []
    assert GRANTS.get(tx, "g") is not None
    assert tx.execute("SELECT 1 FROM client WHERE id = ?", (client_id,)).fetchone() is not None


def test_over_http_a_forgotten_quote_is_not_there(tmp_path_factory: pytest.TempPathFactory, refused: Refused) -> None:
    with run_instance(tmp_path_factory.mktemp("quotes") / "payres.db") as instance:
        check_forgotten(instance, refused)


def check_forgotten(instance: Instance, refused: Refused) -> None:
    alice, client = instance.wallet("alice"), instance.client
    receiver = client.create_incoming_payment(instance.wallet("bob"))["id"]
    usd = {"value": "5", "assetCode": "USD", "assetScale": 2}
    unused, used = (client.create_quote(alice, receiver, debitAmount=usd)["id"] for _ in range(2))
    payment = client.create_outgoing_payment(alice, used)
    instance.clock.advance(2 * 86400)
    for _ in range(2):
        newest = client.create_quote(alice, receiver, debitAmount=usd)["id"]
    token = client.grant({"type": "quote", "actions": ["read"]})
    assert [client.get(url, token).status_code for url in (used, newest)] == [200, 200]
    refused(client.get(unused, token), 404, "not_found")
    item = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": alice}
    paying = client.grant(item)
    body = {"walletAddress": alice, "quoteId": unused}
    refused(client.post("/outgoing-payments", body, paying), 400, "invalid_quote", field="quoteId")
    assert client.get(payment["id"], paying).json()["quoteId"] == used
    instance.check_ledger()
