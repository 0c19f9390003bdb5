"""The purge of grants and clients: what was approved or used stays, the rest is deleted a little at a time."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import settings as bounds
from hypothesis import strategies as st

from payres.cli import main
from payres.clock import DAY, HOUR, MINUTE, SECOND
from payres.errors import DomainError
from payres.grants import clients, consent
from payres.grants.access import Caller
from payres.grants.clients import Client
from payres.grants.gnap import GrantRequest, GrantResponse, IncomingPaymentAccess
from payres.grants.requests import continue_grant, request_grant
from payres.grants.tokens import revoke_grant, rotate_token
from payres.operator import grants as operator_grants
from payres.operator import wallets
from payres.payments import incoming
from payres.settings import Settings
from payres.signatures.jwk import JWK, generate_private_key, jwk_from_public_bytes
from payres.store import clients as client_store
from payres.store import grants, retention
from payres.store.clients import use_nonce
from payres.store.connections import connect_writer
from payres.store.grants import GRANTS, TOKENS, TokenRecord
from payres.store.retention import DECIDED_GRANT, ENDED_TOKENS_KEPT, TOKENS_AT_ONCE, UNUSED_CLIENT, UNUSED_GRANT, purge
from payres.store.work import Transaction
from payres.testing.client import Client as SigningClient
from payres.testing.instance import Instance, run_instance
from payres.wire import IncomingPaymentRequest
from tests.helpers import Json
from tests.works import NOW, work_at

FreshKey = Callable[[], SigningClient]

START = NOW
SETTINGS = Settings(base_url="http://h", continue_wait=0)
TOKEN_LIFETIME = SETTINGS.access_token_lifetime * SECOND
TIME_TO_DECIDE = SETTINGS.interaction_lifetime * SECOND
FREE: Json = {"type": "incoming-payment", "actions": ["create", "read"]}
SPENDING: Json = {"type": "outgoing-payment", "actions": ["create"], "identifier": "http://h/alice"}
SHOP = Client("https://shop.example", "https://shop.example", None)
A_KEY = msgspec.json.encode(jwk_from_public_bytes("key", generate_private_key().public_key().public_bytes_raw()))


@pytest.fixture(autouse=True)
def books(tx: Transaction) -> None:
    open_alice(tx)


def open_alice(tx: Transaction) -> None:
    wallets.create_wallet(work_at(tx, START), "alice", "USD", 2, None, None)


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


def create(tx: Transaction, client_id: int, now: int) -> None:
    """Makes something, as a client does."""
    access = IncomingPaymentAccess(actions=["create"])
    caller = Caller(client_id, "grant", "token", "create", (access,), wallet_address="http://h/alice")
    incoming.create(work_at(tx, now, SETTINGS), caller, IncomingPaymentRequest(wallet_address="http://h/alice"))


def count(tx: Transaction, table: str) -> int:
    number: int = tx.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
    return number


def purge_all(tx: Transaction, now: int) -> None:
    """As very many new grants and clients would do."""
    for _ in range(200):
        purge(tx, retention.GRANTS, now)
        purge(tx, retention.CLIENTS, now)


def test_grant_requests_of_unauthenticated_clients_are_bounded(tx: Transaction) -> None:
    """Three fresh keys an hour, one of them with a cancelled grant and one whose request is refused after all."""
    now, each_hour, hours = START, 3, 24 * 12
    seen = []
    for hour in range(hours):
        now += HOUR
        for number in range(each_hour - 1):
            answer = ask(tx, unregistered(each_hour * hour + number), now)
            if number == 1:
                revoke_grant(work_at(tx, now), id_of(answer))
        client_id = clients.remember(work_at(tx, now), unregistered(-1 - hour)).id
        assert use_nonce(tx, client_id, "key", "nonce", now + 5 * MINUTE, now)
        seen.append({table: count(tx, table) for table in ("client", "client_key", "grant", "access_token")})
    for table in seen[0]:
        assert max(of[table] for of in seen) <= each_hour * (24 + 2), "a day's worth, and the hour or so around it"
        assert seen[-1][table] > each_hour * 12, "and not so soon that nobody could come back"
    assert tx.execute("PRAGMA foreign_key_check").fetchall() == []


def test_what_one_client_asks_for_is_bounded(tx: Transaction) -> None:
    now = START
    for number in range(24 * 6):
        now += HOUR
        ask(tx, SHOP, now, SPENDING if number % 2 else FREE)
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
        assert grants.interaction_of_grant(tx, grant_id)
        return
    purge_all(tx, START + stays - 1)
    assert GRANTS.get(tx, grant_id) is not None
    purge_all(tx, START + stays)
    assert [count(tx, table) for table in ("grant", "interaction", "client")] == [0, 0, 0]


def test_decision_on_a_forgotten_request_is_refused(tx: Transaction) -> None:
    asked = ask(tx, SHOP, START, SPENDING)
    assert asked.interact
    *_, interaction_id, nonce = asked.interact.redirect.split("/")
    purge_all(tx, START + 2 * DAY)
    with pytest.raises(DomainError) as refusal:
        consent.find_pending(tx, interaction_id, nonce)
    assert (refusal.value.status, refusal.value.code) == (404, "unknown_interaction")


def test_token_that_is_gone_has_ended(tx: Transaction) -> None:
    expires_at, revoked_at, state = grants.token_state(tx, "gone")
    assert (expires_at <= START, revoked_at, state) == (True, 0, "revoked")


def test_client_that_made_something_stays_with_its_keys(tx: Transaction) -> None:
    for number in range(2):
        ask(tx, unregistered(number), START)
    create(tx, clients.remember(work_at(tx, START), unregistered(1)).id, START)
    purge_all(tx, START + 10 * DAY)
    assert tx.execute("SELECT identity, purge_at FROM client").fetchall() == [("thumbprint-1", None)]
    assert count(tx, "client_key") == 1


def test_client_stays_while_its_nonces_count(tx: Transaction) -> None:
    client_id = clients.remember(work_at(tx, START), SHOP).id
    late = START + UNUSED_CLIENT
    assert use_nonce(tx, client_id, "key", "nonce", late + 5 * MINUTE, late)
    purge_all(tx, late + MINUTE)
    assert not use_nonce(tx, client_id, "key", "nonce", late + 5 * MINUTE, late + MINUTE)
    other = clients.remember(work_at(tx, late + HOUR), unregistered(1)).id
    assert use_nonce(tx, other, "key", "nonce", late + 2 * HOUR, late + HOUR)
    purge_all(tx, late + MINUTE + HOUR)
    assert client_store.find_client(tx, SHOP.identity) is None


def test_client_that_comes_back_in_time_is_the_same(tx: Transaction) -> None:
    client_id = clients.remember(work_at(tx, START), SHOP).id
    answer = ask(tx, SHOP, START + UNUSED_CLIENT - 1)
    purge_all(tx, START + UNUSED_CLIENT)
    assert clients.remember(work_at(tx, START + UNUSED_CLIENT), SHOP).id == client_id
    assert GRANTS.get(tx, id_of(answer)) is not None


def test_key_that_comes_with_another_kid_is_taken_over(tx: Transaction) -> None:
    first = clients.remember(work_at(tx, START), unregistered(1))
    key = msgspec.json.decode(A_KEY, type=JWK)
    renamed = msgspec.structs.replace(unregistered(1), jwk=msgspec.json.encode(JWK("other", key.x)).decode())
    again = clients.remember(work_at(tx, START), renamed)
    assert (again.id, again.jwk) == (first.id, renamed.jwk)
    assert {record.kid for record in client_store.client_keys(tx, "thumbprint-1")} == {"key", "other"}


def test_of_rotated_tokens_the_newest_are_remembered(tx: Transaction) -> None:
    answer = ask(tx, SHOP, START)
    grants.keep_grant(tx, id_of(answer))
    rotated = [token_of(answer)]
    for number in range(1, 3 * ENDED_TOKENS_KEPT):
        rotated.append(rotate(tx, rotated[-1], START + number * MINUTE))
        assert count(tx, "access_token") <= ENDED_TOKENS_KEPT + 1
    known = [token_id for token_id in rotated if TOKENS.get(tx, token_id) is not None]
    assert known == rotated[-ENDED_TOKENS_KEPT - 1 :]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["free", "spending", "approve", "deny", "continue", "create", "rotate", "revoke", "wait", "long wait"]
        ),
        st.integers(0, 7),
    ),
    min_size=5,
    max_size=60,
)


class Story:
    """Clients, owners and the operator do what they like with grants; what must be kept of it is kept book of."""

    def __init__(self, tx: Transaction) -> None:
        self.tx, self.now = tx, START
        self.asked: list[GrantResponse] = []
        self.tokens: dict[str, tuple[str, int]] = {}  # of each grant, with when it expires
        self.staying: set[str] = set()
        self.makers: set[int] = set()

    def take(self, step: str, number: int) -> None:
        """Does it, unless it is refused."""
        match step:
            case "free" | "spending":
                client = SHOP if step == "spending" else unregistered(number)
                self.asked.append(ask(self.tx, client, self.now, FREE if step == "free" else SPENDING))
                if step == "free":
                    self.tokens[id_of(self.asked[-1])] = (token_of(self.asked[-1]), self.now + TOKEN_LIFETIME)
            case "wait" | "long wait":
                self.now += (number + 1) * (MINUTE if step == "wait" else 5 * DAY)
                purge_all(self.tx, self.now)
            case _ if self.asked:
                self._act(step, self.asked[number % len(self.asked)])

    def _act(self, step: str, answer: GrantResponse) -> None:
        tx, grant_id = self.tx, id_of(answer)
        match step:
            case "approve" | "deny":
                decide(tx, grant_id, step == "approve", self.now)
            case "continue":
                token = answer.continue_.access_token.value
                issued = continue_grant(work_at(tx, self.now, SETTINGS), grant_id, token, None)
                if issued.access_token:
                    self.tokens[grant_id] = (token_of(issued), self.now + TOKEN_LIFETIME)
                    self.staying.add(grant_id)
            case "rotate" if grant_id in self.tokens:
                self.tokens[grant_id] = (rotate(tx, self.tokens[grant_id][0], self.now), self.now + TOKEN_LIFETIME)
            case "revoke":
                operator_grants.revoke(work_at(tx, self.now), grant_id)
            case "create" if grant_id in self.tokens and self.now < self.tokens[grant_id][1]:
                grants.keep_grant(tx, grant_id)
                record = GRANTS.get(tx, grant_id)
                assert record is not None
                create(tx, record.client_id, self.now)
                self.staying.add(grant_id)
                self.makers.add(record.client_id)


@given(STEPS)
@bounds(max_examples=60)
def test_grant_that_was_consented_to_or_used_is_never_forgotten(steps: list[tuple[str, int]]) -> None:
    with closing(connect_writer(":memory:")) as tx:
        open_alice(tx)
        history = Story(tx)
        for step in steps:
            with suppress(DomainError):
                history.take(*step)
        purge_all(tx, history.now)
        there = {grant_id for (grant_id,) in tx.execute('SELECT id FROM "grant"')}
        assert history.staying <= there
        usable = {
            grant_id
            for grant_id, (_, expires_at) in history.tokens.items()
            if grant_id in history.staying or history.now < expires_at + UNUSED_GRANT
        }
        assert usable <= there
        assert all(TOKENS.get(tx, history.tokens[grant_id][0]) for grant_id in usable)
        assert history.makers <= {client_id for (client_id,) in tx.execute("SELECT id FROM client")}
        assert tx.execute("PRAGMA foreign_key_check").fetchall() == []
        purge_all(tx, history.now + DECIDED_GRANT + TIME_TO_DECIDE)
        assert {grant_id for (grant_id,) in tx.execute('SELECT id FROM "grant"')} == history.staying, "and nothing else"


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with run_instance(tmp_path_factory.mktemp("forgetting") / "payres.db") as running:
        yield running


@pytest.fixture
def fresh_key(instance: Instance) -> Iterator[FreshKey]:
    """Makes unauthenticated clients, which are known by their key alone."""
    with ExitStack() as stack:

        def make() -> SigningClient:
            private_key = generate_private_key()
            jwk = jwk_from_public_bytes("key", private_key.public_key().public_bytes_raw())
            client = SigningClient("", private_key, jwk, instance.base_url, instance.clock, instance.approve)
            stack.callback(client.close)
            return client

        yield make


def ask_by_key(client: SigningClient, *access: Json) -> Json:
    answer = client.request_grant(*access, client={"jwk": msgspec.to_builtins(client.jwk)}, interact=None)
    assert answer.status_code == 200, answer.text
    granted: Json = answer.json()
    return granted


@pytest.mark.parametrize("is_keyed", [True, False])
@pytest.mark.parametrize("made", ["incoming-payments", "quotes", None])
def test_over_http_a_grant_is_used_by_creating_something(
    instance: Instance, fresh_key: FreshKey, made: str | None, is_keyed: bool
) -> None:
    receiver = instance.client.create_incoming_payment(
        instance.wallet("bob"), {"value": "1", "assetCode": "USD", "assetScale": 2}
    )
    client = fresh_key()
    granted = ask_by_key(client, FREE, {"type": "quote", "actions": ["create"]})
    body: Json = {"walletAddress": instance.wallet("alice")}
    if made == "quotes":
        body |= {"receiver": receiver["id"], "method": "ilp"}
    token = granted["access_token"]["value"]
    if made is None:
        refused = client.post("/incoming-payments", {"walletAddress": instance.wallet("nobody")}, token)
        assert refused.status_code == 400, "what is refused makes nothing"
    else:
        headers = {"idempotency-key": '"one"'} if is_keyed else {}
        answer = client.request("POST", f"/{made}", body, token, headers)
        assert answer.status_code == 201, answer.text
    instance.clock.advance(3 * 86400)
    for _ in range(20):
        ask_by_key(fresh_key(), FREE)
    rotated = client.post(granted["access_token"]["manage"], token=token)
    if made is None:
        assert (rotated.status_code, rotated.json()["error"]["code"]) == (404, "invalid_rotation")
        follow_up = granted["continue"]
        answer = client.post(follow_up["uri"], token=follow_up["access_token"]["value"])
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "invalid_continuation")
        assert client.get(receiver["id"], token).json()["error"]["details"]["reason"] == "unknown_token"
    else:
        assert rotated.status_code == 200
    instance.check_ledger()


def test_payment_with_its_grant_outlasts_everything(instance: Instance, fresh_key: FreshKey) -> None:
    receiver = instance.client.create_incoming_payment(
        instance.wallet("bob"), {"value": "100", "assetCode": "USD", "assetScale": 2}
    )
    payment = instance.client.pay(instance.wallet("alice"), receiver["id"])
    instance.clock.advance(400 * 86400)
    for _ in range(20):
        ask_by_key(fresh_key(), FREE)
    grant_of_payment = 'SELECT g.id FROM outgoing_payment p JOIN "grant" g ON g.id = p.grant_id WHERE p.id = ?'
    payment_id = payment["id"].rpartition("/")[2]
    assert instance.read(lambda tx: tx.execute(grant_of_payment, (payment_id,)).fetchone()) is not None
    instance.check_ledger()


def test_commands_list_what_is_left(instance: Instance, fresh_key: FreshKey) -> None:
    grant_id = ask_by_key(fresh_key(), FREE)["continue"]["uri"].rpartition("/")[2]
    database = ("--database", instance.context.database.path)
    before = CliRunner().invoke(main, ("grant", "list", "--limit", "10000", *database))
    assert grant_id in before.stdout
    instance.clock.advance(3 * 86400)
    for _ in range(200):
        instance.write(lambda tx: purge(tx, retention.GRANTS, instance.clock.now()))
    after = CliRunner().invoke(main, ("grant", "list", "--limit", "10000", *database))
    assert after.exit_code == 0
    assert after.stdout
    assert grant_id not in after.stdout
    shown = CliRunner().invoke(main, ("grant", "show", grant_id, *database))
    assert (shown.exit_code, shown.stderr) == (
        1,
        f"Error: There is no grant {grant_id}; `payres grant list` shows all\n",
    )


def test_redirect_to_a_forgotten_request_leads_nowhere(instance: Instance, fresh_key: FreshKey) -> None:
    item = SPENDING | {"identifier": instance.wallet("alice")}
    redirect = instance.client.request_grant(item).json()["interact"]["redirect"]
    assert parse_qs(urlsplit(redirect).query) == {}
    instance.clock.advance(3 * 86400)
    for _ in range(20):
        ask_by_key(fresh_key(), FREE)
    assert instance.client.get(redirect).status_code == 404
