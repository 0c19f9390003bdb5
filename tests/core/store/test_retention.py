"""Retention: approved and used rows stay, temporary rows are deleted a few at a time."""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import httpx2
import msgspec
import pytest

from payres.accounts.store import sessions
from payres.accounts.store.browsers import BROWSERS
from payres.core.grants import clients
from payres.core.grants.access import Caller
from payres.core.grants.requests import continue_grant, request_grant
from payres.core.grants.tokens import revoke_grant, rotate_token
from payres.core.payments import incoming, quotes
from payres.core.process.settings import Settings
from payres.core.process.worker import cancel_all
from payres.core.protocol.clock import DAY, HOUR, MINUTE, SECOND, format_time
from payres.core.protocol.errors import DomainError
from payres.core.protocol.gnap import GrantRequest, GrantResponse, IncomingPaymentAccess, OutgoingPaymentAccess
from payres.core.protocol.limits import MAX_ENDED_TOKENS
from payres.core.protocol.wire import Amount, IncomingPaymentRequest, QuoteRequest
from payres.core.signatures.jwk import generate_private_key, jwk_from_public_bytes
from payres.core.store import clients as client_store
from payres.core.store import events, grants, retention
from payres.core.store.clients import Client, use_nonce
from payres.core.store.database import Database
from payres.core.store.grants import GRANTS, TOKENS, TokenRecord
from payres.core.store.incoming_payments import INCOMING
from payres.core.store.quotes import QUOTES
from payres.core.store.retention import (
    DECIDED_GRANT,
    EMPTY_PAYMENT,
    NONCES,
    TOKENS_AT_ONCE,
    UNUSED_CLIENT,
    UNUSED_GRANT,
    UNUSED_QUOTE,
    Rule,
    purge,
)
from payres.core.store.wallets import require_wallet
from payres.core.store.work import INSERT_EVENT, Environment, Transaction, Work
from payres.operator import grants as operator_grants
from payres.operator import wallets
from payres.operator.store import used_forms
from payres.people.store.checkouts import CHECKOUTS, CheckoutRecord, end_page, insert_checkout
from tests.conftest import Refused
from tests.helpers import TIMEOUT, Json, client_with_key, last_segment, usd
from tests.instance import Instance
from tests.works import NOW as START
from tests.works import caller_of, work_at

SETTINGS = Settings(
    base_url="http://h",
    continue_wait=0,
    quote_lifetime=300,
    interaction_lifetime=300,
    incoming_payment_lifetime=1000 * 86400,
)
TOKEN_LIFETIME = SETTINGS.access_token_lifetime * SECOND
TIME_TO_DECIDE = SETTINGS.interaction_lifetime * SECOND
QUOTE_LIFETIME = SETTINGS.quote_lifetime * SECOND
FREE: Json = {"type": "incoming-payment", "actions": ["create", "read"]}
SPENDING: Json = {"type": "outgoing-payment", "actions": ["create"], "identifier": "http://h/alice"}
ALICE = "http://h/alice"
SHOP = Client("https://shop.example", "https://shop.example", None)
A_KEY = msgspec.json.encode(jwk_from_public_bytes("key", generate_private_key().public_key().public_bytes_raw()))
AGE = 300


@pytest.fixture(autouse=True)
def books(tx: Transaction) -> None:
    open_wallets(tx)


def open_wallets(tx: Transaction) -> None:
    for name in ("alice", "bob"):
        wallets.create_wallet(work_at(tx, START), name, "USD", 2, None, None)
    wallets.deposit(work_at(tx, START), "alice", "1000.00")


def unregistered(number: int) -> Client:
    """One of as many as there are; what their keys are plays no part in this."""
    return Client(f"thumbprint-{number}", None, A_KEY.decode())


def ask(tx: Transaction, client: Client, now: int, item: Json = FREE) -> GrantResponse:
    asked = {"client": "https://shop.example", "access_token": {"access": [item]}, "interact": {"start": ["redirect"]}}
    request = msgspec.convert(asked, GrantRequest)
    return request_grant(work_at(tx, now, SETTINGS), request, client, None)


def id_of(answer: GrantResponse) -> str:
    return answer.continue_.uri.rpartition("/")[2]


def token_of(answer: GrantResponse) -> str:
    assert isinstance(answer.access_token, msgspec.Struct)
    return answer.access_token.manage.rpartition("/")[2]


def rotate(tx: Transaction, token_id: str, now: int) -> str:
    return rotate_token(work_at(tx, now, SETTINGS), token_id).manage.rpartition("/")[2]


def decide(tx: Transaction, grant_id: str, approve: bool, now: int) -> None:
    operator_grants.decide(work_at(tx, now, SETTINGS), grant_id, approve=approve)


def caller(client_id: int, grant_id: str = "grant", wallet_address: str = ALICE) -> Caller:
    access = IncomingPaymentAccess(actions=["create"]), OutgoingPaymentAccess(actions=["create"], identifier=ALICE)
    return caller_of(client_id, grant_id, *access, wallet_address=wallet_address)


def create(tx: Transaction, client_id: int, now: int) -> str:
    """The URL of something that a client made: an incoming payment of alice that is open for years."""
    asked = IncomingPaymentRequest(wallet_address=ALICE)
    return incoming.create(work_at(tx, now, SETTINGS), caller(client_id), asked).id


@pytest.fixture
def receiver(tx: Transaction) -> str:
    """An incoming payment of bob that is open for years."""
    maker = clients.remember(work_at(tx, START), Client("shop", "http://h/bob", None)).id
    asked = IncomingPaymentRequest(wallet_address="http://h/bob")
    return incoming.create(work_at(tx, START, SETTINGS), caller(maker, wallet_address="http://h/bob"), asked).id


def client_of(tx: Transaction, number: int, now: int) -> int:
    return clients.remember(work_at(tx, now), unregistered(number)).id


def quote(tx: Transaction, receiver: str, client_id: int, now: int) -> None:
    debit = Amount(value="5", asset_code="USD", asset_scale=2)
    asked = QuoteRequest(wallet_address=ALICE, receiver=receiver, method="ilp", debit_amount=debit)
    quotes.create(work_at(tx, now, SETTINGS), caller(client_id), asked, None)


def count(tx: Transaction, table: str) -> int:
    number: int = tx.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
    return number


def purge_all(tx: Transaction, now: int) -> None:
    """As very many new grants, quotes and clients would do."""
    for _ in range(200):
        for rule in (retention.GRANTS, retention.QUOTES, retention.INCOMING_PAYMENTS, retention.CLIENTS):
            purge(tx, rule, now)


# Grants and clients


def test_what_unauthenticated_clients_ask_for_is_bounded(tx: Transaction, receiver: str) -> None:
    """Four fresh keys an hour: two with a grant, one of which is cancelled, one with a quote, one that is refused."""
    now, each_hour, hours = START, 4, 24 * 12
    seen = []
    for hour in range(hours):
        now += HOUR
        for number in range(2):
            answer = ask(tx, unregistered(each_hour * hour + number), now)
        revoke_grant(work_at(tx, now), id_of(answer))
        quote(tx, receiver, client_of(tx, each_hour * hour + 2, now), now)
        client_id = client_of(tx, -1 - hour, now)
        assert use_nonce(tx, client_id, "key", "nonce", now + 5 * MINUTE, now)
        seen.append({table: count(tx, table) for table in ("client", "client_key", "grant", "access_token", "quote")})
    each = {"client": 4, "client_key": 4, "quote": 1}
    for table in seen[0]:
        new = each.get(table, 2)
        assert max(of[table] for of in seen) <= new * (24 + 2) + 1, "a day's worth, and the hour or so around it"
        assert seen[-1][table] > new * 12, "and not so soon that nobody could come back"
    assert tx.execute("PRAGMA foreign_key_check").fetchall() == []


def test_what_one_client_asks_for_is_bounded(tx: Transaction) -> None:
    for hour in range(1, 24 * 6):
        ask(tx, SHOP, START + hour * HOUR, SPENDING if hour % 2 else FREE)
        assert count(tx, "grant") <= 24 + 2
    assert count(tx, "interaction") <= 13
    assert count(tx, "client") == 1


def test_old_ones_go_a_few_at_a_time_and_faster_than_new_ones_come(tx: Transaction) -> None:
    for number in range(40):
        ask(tx, unregistered(number), START)
    later = START + UNUSED_GRANT + TOKEN_LIFETIME
    for number in range(1, 21):
        ask(tx, unregistered(-number), later)
        assert count(tx, "grant") == 40 - 2 * number + number
        assert count(tx, "client") >= 40 - 4 * number + number
    assert count(tx, "grant") == 20


def test_grant_with_very_many_tokens_goes_in_steps(tx: Transaction) -> None:
    answer = ask(tx, SHOP, START)
    for number in range(2 * TOKENS_AT_ONCE):
        TOKENS.insert(tx, TokenRecord(f"{number}", id_of(answer), b"%d" % number, START, START + 1, START))
    left = []
    for _ in range(3):
        purge(tx, retention.GRANTS, START + 2 * UNUSED_GRANT)
        left.append((count(tx, "access_token"), count(tx, "grant")))
    assert left == [(TOKENS_AT_ONCE + 1, 1), (1, 1), (0, 0)]


@pytest.mark.parametrize("rotations", [0, 1, 3])
def test_unused_grant_can_be_rotated_for_a_day_after_its_token(tx: Transaction, rotations: int) -> None:
    now = START
    answer = ask(tx, SHOP, now)
    token_id = token_of(answer)
    for _ in range(rotations):
        now += TOKEN_LIFETIME + UNUSED_GRANT - 1
        purge_all(tx, now)
        token_id = rotate(tx, token_id, now)
    purge_all(tx, now + TOKEN_LIFETIME + UNUSED_GRANT - 1)
    assert TOKENS.get(tx, token_id) is not None
    purge_all(tx, now + TOKEN_LIFETIME + UNUSED_GRANT)
    with pytest.raises(DomainError) as refusal:
        rotate(tx, token_id, now + TOKEN_LIFETIME + UNUSED_GRANT)
    assert refusal.value.code == "invalid_rotation"
    assert [count(tx, table) for table in ("grant", "access_token", "client")] == [0, 0, 0]


@pytest.mark.parametrize(
    ("end", "stays"),
    [
        (None, TIME_TO_DECIDE + UNUSED_GRANT),
        ("cancel", TIME_TO_DECIDE + UNUSED_GRANT),
        ("deny", MINUTE + DECIDED_GRANT),
        ("approve", MINUTE + DECIDED_GRANT),
        ("approve, cancel", MINUTE + DECIDED_GRANT),
        ("approve, continue", None),
        ("approve, continue, cancel", None),
    ],
)
def test_request_for_consent_goes_unless_it_was_approved_and_continued(
    tx: Transaction, end: str | None, stays: int | None
) -> None:
    answer = ask(tx, SHOP, START, SPENDING)
    grant_id = id_of(answer)
    for step in end.split(", ") if end else ():
        if step == "cancel":
            revoke_grant(work_at(tx, START + MINUTE), grant_id)
        elif step == "continue":
            continue_grant(work_at(tx, START + MINUTE, SETTINGS), grant_id, answer.continue_.access_token.value, None)
        else:
            decide(tx, grant_id, step == "approve", START + MINUTE)
    if stays is None:
        purge_all(tx, START + 1000 * DAY)
        assert grants.INTERACTIONS.find(tx, grant_id=grant_id)
        return
    purge_all(tx, START + stays - 1)
    assert GRANTS.get(tx, grant_id) is not None
    purge_all(tx, START + stays)
    assert [count(tx, table) for table in ("grant", "interaction", "client")] == [0, 0, 0]


def test_client_stays_while_its_nonces_count(tx: Transaction) -> None:
    client_id = clients.remember(work_at(tx, START), SHOP).id
    late = START + UNUSED_CLIENT
    assert use_nonce(tx, client_id, "key", "nonce", late + 5 * MINUTE, late)
    purge_all(tx, late + MINUTE)
    assert not use_nonce(tx, client_id, "key", "nonce", late + 5 * MINUTE, late + MINUTE)
    other = clients.remember(work_at(tx, late + HOUR), unregistered(1)).id
    assert use_nonce(tx, other, "key", "nonce", late + 2 * HOUR, late + HOUR)
    purge_all(tx, late + MINUTE + HOUR)
    assert client_store.CLIENTS.find(tx, identity=SHOP.identity) is None


def test_of_rotated_tokens_the_newest_are_remembered(tx: Transaction) -> None:
    answer = ask(tx, SHOP, START)
    grants.keep_grant(tx, id_of(answer))
    rotated = [token_of(answer)]
    for number in range(1, 3 * MAX_ENDED_TOKENS):
        rotated.append(rotate(tx, rotated[-1], START + number * MINUTE))
        assert count(tx, "access_token") <= MAX_ENDED_TOKENS + 1
    known = [token_id for token_id in rotated if TOKENS.get(tx, token_id) is not None]
    assert known == rotated[-MAX_ENDED_TOKENS - 1 :]


# Quotes


def test_client_goes_with_its_last_quote(tx: Transaction, receiver: str) -> None:
    client_id = client_of(tx, 1, START)
    quote(tx, receiver, client_id, START)
    purge(tx, retention.CLIENTS, START + UNUSED_CLIENT)
    assert tx.execute("SELECT purge_at FROM client WHERE id = ?", (client_id,)).fetchone() == (None,)
    purge(tx, retention.QUOTES, START + QUOTE_LIFETIME + UNUSED_QUOTE)
    assert tx.execute("SELECT 1 FROM client WHERE id = ?", (client_id,)).fetchone() is None


# Incoming payments


def empty(tx: Transaction, now: int, client_id: int | None = None, amount: int | None = None) -> str:
    """The id of an incoming payment of alice that expires after an hour, and has."""
    asked = IncomingPaymentRequest(
        wallet_address=ALICE,
        expires_at=format_time(now + HOUR),
        incoming_amount=Amount(value=str(amount), asset_code="USD", asset_scale=2) if amount else msgspec.UNSET,
    )
    maker = client_of(tx, 1, now) if client_id is None else client_id
    return last_segment(incoming.create(work_at(tx, now, SETTINGS), caller(maker), asked).id)


def expire(tx: Transaction, now: int) -> None:
    incoming._expire_due(work_at(tx, now))


GONE = HOUR + EMPTY_PAYMENT


def test_empty_payment_without_an_amount_goes_seven_days_after_it_expired(tx: Transaction) -> None:
    gone = empty(tx, START)
    expire(tx, START + HOUR)
    purge(tx, retention.INCOMING_PAYMENTS, START + GONE - 1)
    assert INCOMING.get(tx, gone) is not None
    purge(tx, retention.INCOMING_PAYMENTS, START + GONE)
    assert count(tx, "incoming_payment") == 0
    assert count(tx, "client") == 0, "nothing else needs its client"
    assert [row[0] for row in tx.execute("SELECT type FROM event WHERE subject = ? ORDER BY sequence", (gone,))] == [
        "incoming_payment.created",
        "incoming_payment.expired",
    ]


@pytest.mark.parametrize("kept", ["has an amount", "was paid", "was paid after", "was completed", "not noticed"])
def test_other_incoming_payments_stay(tx: Transaction, kept: str) -> None:
    payment_id = empty(tx, START, amount=100 if kept == "has an amount" else None)
    wallet = require_wallet(work_at(tx, START), "alice")
    if kept == "was paid":
        incoming.credit(work_at(tx, START), wallet, INCOMING.by_id(tx, payment_id), 5)
    if kept == "was completed":
        incoming.complete(work_at(tx, START), wallet, INCOMING.by_id(tx, payment_id))
    if kept != "not noticed":
        expire(tx, START + HOUR)
    if kept == "was paid after":  # by a clock that was set back
        incoming.credit(work_at(tx, START), wallet, INCOMING.by_id(tx, payment_id), 5)
    purge_all(tx, START + 1000 * DAY)
    assert INCOMING.get(tx, payment_id) is not None
    due = tx.execute("SELECT count(*) FROM incoming_payment WHERE purge_at IS NOT NULL").fetchone()
    assert due == (0,), "it is looked at once"


def test_quotes_go_with_their_payment_a_few_at_a_time(tx: Transaction) -> None:
    gone = empty(tx, START)
    url = f"http://h/incoming-payments/{gone}"
    for number in range(20):
        quote(tx, url, client_of(tx, 100 + number, START), START)
    expire(tx, START + HOUR)
    left = []
    for _ in range(4):
        purge(tx, retention.INCOMING_PAYMENTS, START + GONE)
        left.append((count(tx, "quote"), count(tx, "incoming_payment")))
    assert left == [(12, 1), (4, 1), (0, 0), (0, 0)]
    assert count(tx, "client") == 0


def test_payment_goes_after_its_checkouts_and_keeps_none_waiting(tx: Transaction) -> None:
    for gone in (empty(tx, START), empty(tx, START)):
        for number in range(10):
            hashed = b"%s %d" % (gone.encode(), number)
            insert_checkout(
                tx, CheckoutRecord(hashed, gone, b"browser", "https://a.example", 1, "asked", START), "{}", ("", "")
            )
    other = empty(tx, START + SECOND)
    expire(tx, START + 2 * HOUR)
    for _ in range(2):
        purge(tx, retention.INCOMING_PAYMENTS, START + SECOND + GONE)
    assert INCOMING.get(tx, other) is None, "the others are looked at again in an hour"
    assert (count(tx, "incoming_payment"), count(tx, "checkout"), count(tx, "client")) == (2, 20, 1)
    for one in CHECKOUTS.list(tx, ""):
        end_page(tx, one.id_hash, START + GONE)
    assert count(tx, "checkout") == 0
    purge(tx, retention.INCOMING_PAYMENTS, START + SECOND + GONE + HOUR)
    assert (count(tx, "incoming_payment"), count(tx, "client")) == (0, 0)


def test_empty_payments_are_bounded_by_those_of_a_while(tx: Transaction) -> None:
    """Ten an hour that expire after an hour: what is there is a week's worth and a bit."""
    now = START
    for _ in range(24 * 10):
        now += HOUR
        for _ in range(10):
            empty(tx, now)
        expire(tx, now)
    assert count(tx, "incoming_payment") <= 10 * (24 * 7 + 3)


# Events


def test_old_events_that_no_part_needs_go_a_batch_at_a_time(tx: Transaction) -> None:
    tx.execute("DELETE FROM event")
    tx.executemany(INSERT_EVENT, [("grant.revoked", None, b"{}", START, None)] * (events.AT_ONCE + 2))
    now = START + events.KEPT
    assert events.delete_old_events(tx, now, []) is None
    assert count(tx, "event") == events.AT_ONCE + 2, "they are not yet old enough"
    assert events.delete_old_events(tx, now + 1, []) is not None
    assert count(tx, "event") == 2
    assert events.delete_old_events(tx, now + 1, [lambda _, sequences: sequences[1:]]) is None
    assert count(tx, "event") == 1, "a part needs the first"


def test_old_events_behind_those_of_a_clock_that_was_ahead_are_deleted(tx: Transaction) -> None:
    tx.execute("DELETE FROM event")
    now = START + events.KEPT + 1
    times = (*[now + 30 * DAY] * events.AT_ONCE, *[START] * 3)
    tx.executemany(INSERT_EVENT, [("grant.revoked", None, b"{}", time, None) for time in times])
    assert events.has_old_events(tx, now)
    after = events.delete_old_events(tx, now, [])
    assert after is not None
    assert events.delete_old_events(tx, now, [], after) is None
    assert count(tx, "event") == events.AT_ONCE


async def test_many_old_events_that_are_needed_keep_no_others(tmp_path: Path) -> None:
    database = await Database.open(str(tmp_path / "payres.db"), Environment.of(Settings()))
    many = 3 * events.AT_ONCE + 1

    def fill(work: Work) -> None:
        for kind in ("needed", "old", "needed", "old"):
            work.executemany(INSERT_EVENT, [(kind, None, b"{}", START, None)] * many)

    left = "SELECT type FROM event"

    def release(tx: Transaction, sequences: Sequence[int]) -> Sequence[int]:
        kinds = dict(tx.execute("SELECT sequence, type FROM event").fetchall())
        return [one for one in sequences if kinds[one] == "old"]

    try:
        await database.write(fill)
        purge = asyncio.create_task(events.purge_events(database, [release]))
        async with asyncio.timeout(TIMEOUT):
            while len(kinds := await database.write(lambda work: work.execute(left).fetchall())) > 2 * many:
                pass
        assert kinds == [("needed",)] * 2 * many
    finally:
        await cancel_all([purge])
        await database.close()


# Nonces


@pytest.fixture
def client(tx: Transaction) -> int:
    return client_store.ensure_client(tx, "https://shop.example", "https://shop.example", None, 0).id


@pytest.mark.parametrize(
    ("uses", "taken"),
    [
        ([(0, 0), (0, 0)], [True, False]),
        ([(0, 0), (0, AGE)], [True, False]),
        ([(0, 0), (60, AGE)], [True, False]),
        ([(0, 0), (AGE + 1, AGE + 1)], [True, True]),
        ([(0, 0), (AGE + 1, AGE + 1), (0, AGE)], [True, True, False]),
        ([(0, 0), (AGE + 1, AGE + 1), (AGE + 1, AGE + 2)], [True, True, False]),
        ([(5, 0), (5, AGE + 5)], [True, False]),
    ],
)
def test_use_nonce_takes_it_once_while_a_signature_is_fresh(
    tx: Transaction, client: int, uses: list[tuple[int, int]], taken: list[bool]
) -> None:
    assert [use_nonce(tx, client, "kid", "nonce", created + AGE, came) for created, came in uses] == taken


def test_use_nonce_tells_keys_and_nonces_apart(tx: Transaction, client: int) -> None:
    pairs = [("kid", "nonce"), ("kid", "other"), ("other", "nonce")]
    assert [use_nonce(tx, client, kid, nonce, AGE, 0) for kid, nonce in pairs * 2] == [True] * 3 + [False] * 3


def test_use_nonce_remembers_those_that_are_over_for_requests_that_still_wait(tx: Transaction, client: int) -> None:
    assert use_nonce(tx, client, "kid", "nonce", AGE, 0)
    assert use_nonce(tx, client, "kid", "later", AGE * 3 + NONCES.after, AGE + NONCES.after - 1)
    assert not use_nonce(tx, client, "kid", "nonce", AGE, AGE)
    assert use_nonce(tx, client, "kid", "last", AGE * 3 + NONCES.after, AGE + NONCES.after)
    assert tx.execute("SELECT nonce FROM signature_nonce ORDER BY nonce").fetchall() == [("last",), ("later",)]


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        (NONCES, "1, 'kid', x, 1"),
        (sessions.SESSIONS, "CAST(x AS BLOB), 1, 1, NULL, 1, 1, NULL, NULL, NULL"),
        (BROWSERS, "CAST(x AS BLOB), 1, NULL, 1, NULL"),
        (used_forms.FORMS, "x, 1"),
    ],
    ids=lambda one: one.table if isinstance(one, Rule) else "",
)
def test_burst_that_has_expired_is_deleted_a_few_rows_at_a_time(
    tx: Transaction, client: int, rule: Rule, values: str
) -> None:
    """And not by the first who comes after a pause."""
    assert client == 1
    numbers = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 100)"
    tx.execute(f"{numbers} INSERT INTO {rule.table} SELECT {values} FROM n")
    for left in range(100 - rule.at_once, -1, -rule.at_once):
        purge(tx, rule, START)
        assert count(tx, rule.table) == left
    purge(tx, rule, START)
    assert count(tx, rule.table) == 0


# Over HTTP


@pytest.mark.parametrize(
    ("made", "is_keyed"),
    [("incoming-payments", True), ("incoming-payments", False), ("quotes", True), ("quotes", False), (None, False)],
)
def test_over_http_a_grant_is_used_by_creating_something(payres: Instance, made: str | None, is_keyed: bool) -> None:
    receiver = payres.client.create_incoming_payment(payres.wallet("bob"), usd(1))
    with closing(client_with_key(payres)) as client:
        granted = client.obtain_grant(FREE, {"type": "quote", "actions": ["create"]})
        body: Json = {"walletAddress": payres.wallet("alice" if made else "nobody")}
        if made == "quotes":
            body |= {"receiver": receiver["id"], "method": "ilp"}
        token = granted["access_token"]["value"]
        headers = {"idempotency-key": '"one"'} if is_keyed else {}
        answer = client.request("POST", f"/{made or 'incoming-payments'}", body, token, headers)
        assert answer.status_code == (201 if made else 400), answer.text  # what is refused makes nothing
        payres.clock.advance(3 * 86400)
        for _ in range(20):
            with closing(client_with_key(payres)) as other:
                other.obtain_grant(FREE)
        rotated = client.post(granted["access_token"]["manage"], token=token)
        if made is None:
            assert (rotated.status_code, rotated.json()["error"]["code"]) == (404, "invalid_rotation")
            follow_up = granted["continue"]
            answer = client.post(follow_up["uri"], token=follow_up["access_token"]["value"])
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "invalid_continuation")
            assert client.get(receiver["id"], token).json()["error"]["details"]["reason"] == "unknown_token"
        else:
            assert rotated.status_code == 200
    payres.check_ledger()


def test_over_http_a_quote_that_was_not_used_is_forgotten(payres: Instance, refused: Refused) -> None:
    alice, client = payres.wallet("alice"), payres.client
    receiver = client.create_incoming_payment(payres.wallet("bob"))["id"]
    unused, used = (client.create_quote(alice, receiver, debitAmount=usd(5))["id"] for _ in range(2))
    payment = client.create_outgoing_payment(alice, used)
    payres.clock.advance(2 * 86400)
    for _ in range(2):
        newest = client.create_quote(alice, receiver, debitAmount=usd(5))["id"]
    token = client.grant({"type": "quote", "actions": ["read"]})
    assert [client.get(url, token).status_code for url in (used, newest)] == [200, 200]
    refused(client.get(unused, token), 404, "not_found")
    item = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": alice}
    paying = client.grant(item)
    for quote_id, status, code in ((unused, 400, "invalid_quote"), (used, 409, "wrong_state")):
        body = {"walletAddress": alice, "quoteId": quote_id}
        refused(client.post("/outgoing-payments", body, paying), status, code, field="quoteId")
    assert client.get(payment["id"], paying).json()["quoteId"] == used
    looked_at = payres.read(lambda tx: QUOTES.get(tx, last_segment(used)))
    assert looked_at is not None
    assert looked_at.purge_at is None, "it is looked at once"
    payres.check_ledger()


def test_over_http_an_empty_payment_is_forgotten_and_what_names_it_goes_on(payres: Instance, refused: Refused) -> None:
    client, wallet = payres.client, payres.create_wallet("carol")
    soon = format_time(payres.clock.now() + HOUR)
    listing: Json = {"type": "incoming-payment", "actions": ["create", "read", "list"]}
    body = {"walletAddress": wallet, "expiresAt": soon}
    keyed = client.request("POST", "/incoming-payments", body, client.grant(listing), {"idempotency-key": "one"})
    empties = [keyed.json()["id"], *(client.create_incoming_payment(wallet, expiresAt=soon)["id"] for _ in range(2))]
    asks = client.create_incoming_payment(wallet, usd(5), expiresAt=soon)["id"]
    paid = client.create_incoming_payment(wallet, expiresAt=soon)["id"]
    quoted = client.create_quote(payres.wallet("alice"), empties[0], debitAmount=usd(5))["id"]
    client.pay(payres.wallet("alice"), paid, debitAmount=usd(7))
    payres.clock.advance(3600)
    payres.write(incoming._expire_due)
    payres.clock.advance(7 * 86400)
    token = client.grant(listing)
    cursor = last_segment(empties[1])  # a page that ended there goes on
    for _ in range(3):
        newest = client.create_incoming_payment(wallet)["id"]
    for url in empties:
        refused(client.get(url, token), 404, "not_found")
        assert httpx2.get(url, headers={"Accept": "application/json"}, timeout=TIMEOUT).status_code == 404
        assert httpx2.get(url.replace("incoming-payments", "pay"), timeout=TIMEOUT).status_code == 404
    refused(client.get(quoted, client.grant({"type": "quote", "actions": ["read"]})), 404, "not_found")
    listed = [one["id"] for one in client.get(f"/incoming-payments?wallet-address={wallet}", token).json()["result"]]
    assert listed[0] == newest
    assert listed[-2:] == [paid, asks]
    assert len(listed) == 5
    for page, shown in ((f"first=5&cursor={cursor}", []), (f"last=5&cursor={cursor}", listed)):
        answer = client.get(f"/incoming-payments?wallet-address={wallet}&{page}", token)
        assert [one["id"] for one in answer.json()["result"]] == shown
    again = client.request("POST", "/incoming-payments", {"walletAddress": wallet}, token, {"idempotency-key": "one"})
    assert again.status_code == 201, "the key was forgotten long before"
    subjects = payres.read(lambda tx: {row[0] for row in tx.execute("SELECT subject FROM event")})
    assert {last_segment(url) for url in empties} <= subjects, "events stay for their time"
    payres.check_ledger()
