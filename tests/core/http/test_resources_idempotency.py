"""Retry-safe creation: one key, one request, one thing created, one answer."""

import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial
from http.client import HTTPResponse
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import http_sf
import httpx2
import pytest

from payres.core.grants.tokens import revoke_token
from payres.core.http import resources
from payres.core.http.requests import idempotency_key
from payres.core.protocol.clock import HOUR, SECOND
from payres.core.protocol.errors import DomainError, Unavailable
from payres.core.protocol.identifiers import hash_secret
from payres.core.protocol.limits import MAX_IDEMPOTENCY_KEY_LENGTH
from payres.core.signatures.fields import content_digest
from payres.core.signatures.sign import Message, sign
from payres.core.store import grants
from payres.core.store.work import Work
from payres.operator import wallets
from tests.conftest import Refused
from tests.helpers import TIMEOUT, Json, sign_by_hand, usd
from tests.instance import Instance
from tests.signing_client import Client

COPIES = 50
TABLES = {"/incoming-payments": "incoming_payment", "/quotes": "quote", "/outgoing-payments": "outgoing_payment"}
KINDS = ["incoming payment", "quote", "payment of a quote", "payment without a quote"]
FRESH = count()


class Making(NamedTuple):
    """A good request that creates something."""

    path: str
    body: Json
    token: str
    wallet: str


def new_key() -> str:
    return str(uuid4())


def access(instance: Instance, wallet: str, *kinds: str, client: Client | None = None) -> str:
    """A token that permits creating such things for a wallet address."""
    return (client or instance.client).grant(
        *({"type": kind, "actions": ["create"], "identifier": wallet} for kind in kinds)
    )


def everything(instance: Instance, wallet: str, client: Client | None = None) -> str:
    return access(instance, wallet, "incoming-payment", "quote", "outgoing-payment", client=client)


def making(instance: Instance, kind: str, client: Client | None = None) -> Making:
    """A request from a new wallet that has 1000.00 USD."""
    client = client or instance.client
    wallet = instance.create_wallet(f"thrifty-{next(FRESH)}", deposit="1000.00")
    receiver = client.create_incoming_payment(instance.wallet("bob"))["id"]
    token = everything(instance, wallet, client)
    body: Json = {"walletAddress": wallet}
    match kind:
        case "incoming payment":
            return Making("/incoming-payments", body | {"incomingAmount": usd(500)}, token, wallet)
        case "quote":
            body |= {"receiver": receiver, "method": "ilp", "debitAmount": usd(500)}
            return Making("/quotes", body, token, wallet)
        case "payment of a quote":
            body |= {"quoteId": client.create_quote(wallet, receiver, debitAmount=usd(500))["id"]}
        case _:
            body |= {"incomingPayment": receiver, "debitAmount": usd(500)}
    return Making("/outgoing-payments", body, token, wallet)


def send(
    instance: Instance, asked: Making, key: str | None, client: Client | None = None, **changes: Any
) -> httpx2.Response:
    asked = asked._replace(**changes)
    headers = {} if key is None else {"idempotency-key": key}
    return (client or instance.client).request("POST", asked.path, asked.body, asked.token, headers)


def made(instance: Instance, asked: Making) -> int:
    """How many things there are of that kind in the wallet."""
    path = asked.wallet.rpartition("/")[2]
    query = f"SELECT count(*) FROM {TABLES[asked.path]} r JOIN wallet_address w ON w.id = wallet_address_id"
    return int(instance.read(lambda tx: tx.execute(f"{query} WHERE w.path = ?", (path,)).fetchone()[0]))


def shown(answer: httpx2.Response) -> tuple[int, bytes, dict[str, str]]:
    """All of an answer but when it was sent, and what it repeats of its request."""
    own = {"date", "x-request-id", "idempotency-key"}
    return answer.status_code, answer.content, {name: answer.headers[name] for name in answer.headers.keys() - own}


@pytest.mark.parametrize("kind", KINDS)
def test_repeated_request_gets_the_same_answer(payres: Instance, kind: str) -> None:
    asked, key = making(payres, kind), new_key()
    first = send(payres, asked, key)
    assert first.status_code == 201
    payres.clock.advance(2)
    for spelling in (key, f'"{key}"'):
        again = send(payres, asked, spelling)
        assert shown(again) == shown(first)
        assert again.headers["Idempotency-Key"] == spelling
    assert made(payres, asked) == 1
    is_paid = asked.path == "/outgoing-payments"
    assert payres.balance(asked.wallet.rpartition("/")[2]) == ("995.00" if is_paid else "1000.00")
    without = send(payres, making(payres, kind), None)
    assert first.json().keys() == without.json().keys()
    assert first.headers.keys() - without.headers.keys() == {"idempotency-key"}


@pytest.mark.parametrize("kind", ["incoming payment", "quote", "payment without a quote"])
def test_without_a_key_and_under_another_each_request_creates(shared: Instance, kind: str) -> None:
    asked, key = making(shared, kind), new_key()
    for value in (None, None, f"a{key}", f"A{key}"):
        assert send(shared, asked, value).status_code == 201
    assert made(shared, asked) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_copies_at_once_create_one_thing_and_have_its_answer(shared: Instance, kind: str) -> None:
    asked = making(shared, kind)
    answers = send_at_once(shared, [asked] * COPIES, new_key())
    assert Counter(answers) == {(201, answers[0][1]): COPIES}
    assert made(shared, asked) == 1
    if asked.path == "/outgoing-payments":
        assert shared.balance(asked.wallet.rpartition("/")[2]) == "995.00"
        spent = shared.client.get("/outgoing-payment-grant", asked.token).json()
        assert spent["spentDebitAmount"] == usd(500)
    shared.check_ledger()


def test_copies_with_other_bodies_at_once_create_one_thing(shared: Instance) -> None:
    asked = making(shared, "payment without a quote")
    bodies = [asked.body | {"debitAmount": usd(100 + number % 5)} for number in range(20)]
    answers = send_at_once(shared, [asked._replace(body=body) for body in bodies], new_key())
    assert Counter(status for status, _ in answers) == {201: 4, 422: 16}
    assert len({body for status, body in answers if status == 201}) == 1
    assert made(shared, asked) == 1


def send_at_once(instance: Instance, requests: Sequence[Making], key: str) -> list[tuple[int, bytes]]:
    """The statuses and bodies of the answers to requests that are all sent before the first answer is read.

    From one thread: many threads, which share the interpreter with the server, keep each other from sending what they
    have begun, until a busy machine's server finds them too slow.
    """
    address = urlsplit(instance.base_url)
    with ExitStack() as stack:
        connections = []
        for signed in [as_sent(instance, asked, key) for asked in requests]:
            connection = socket.create_connection((address.hostname, address.port), timeout=TIMEOUT)
            stack.enter_context(connection).sendall(signed)
            connections.append(connection)
        answers = [stack.enter_context(closing(HTTPResponse(connection))) for connection in connections]
        for answer in answers:
            answer.begin()
        return [(answer.status, answer.read()) for answer in answers]


def as_sent(instance: Instance, asked: Making, key: str) -> bytes:
    """The request as it is sent on a connection of its own."""
    client, body = instance.client, json.dumps(asked.body).encode()
    sent = {"content-type": "application/json", "authorization": f"GNAP {asked.token}", "idempotency-key": key}
    lines = [(name.encode(), value.encode()) for name, value in sent.items()]
    message = Message("POST", instance.base_url + asked.path, lines, body)
    sent |= sign(message, client.private_key.sign, client.jwk.kid, instance.clock.now() // SECOND)
    sent |= {"Host": "h", "Connection": "close"}
    fields = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    return f"POST {asked.path} HTTP/1.1\r\n{fields}\r\n".encode() + body


def test_copies_at_once_of_what_is_refused_are_each_refused(shared: Instance, refused: Refused) -> None:
    asked = making(shared, "payment without a quote")
    key, body = new_key(), asked.body | {"debitAmount": usd(100_001)}
    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(lambda _: send(shared, asked, key, body=body), range(10)))
    for answer in answers:
        refused(answer, 403, "insufficient_funds", reason="wallet")
    assert made(shared, asked) == 0


def test_answer_stays_as_it_was_when_the_payment_has_moved_on(shared: Instance) -> None:
    wallet = shared.wallet("bob")
    token = shared.client.grant(
        {"type": "incoming-payment", "actions": ["create", "complete", "read"], "identifier": wallet}
    )
    asked = Making("/incoming-payments", {"walletAddress": wallet, "metadata": {"b": 1.50, "a": "é"}}, token, wallet)
    key = new_key()
    first = send(shared, asked, key)
    created = first.json()
    assert shared.client.post(f"{created['id']}/complete", token=token).json()["completed"]
    repeated = send(shared, asked, key)
    assert shown(repeated) == shown(first)
    assert repeated.json()["methods"] == created["methods"] != []
    assert shared.client.get(created["id"], token).json()["completed"]


def test_answer_is_given_although_its_wallet_takes_no_more(shared: Instance, refused: Refused) -> None:
    asked = making(shared, "incoming payment")
    key = new_key()
    first = send(shared, asked, key)
    shared.write(lambda tx: wallets.deactivate(tx, asked.wallet.rpartition("/")[2]))
    assert shown(send(shared, asked, key)) == shown(first)
    refused(send(shared, asked, new_key()), 400, "invalid_request", field="walletAddress")


@pytest.mark.parametrize("kind", ["incoming payment", "payment without a quote"])
def test_key_is_good_for_a_day(payres: Instance, kind: str) -> None:
    asked, key = making(payres, kind), new_key()
    first = send(payres, asked, key)
    payres.clock.advance(24 * HOUR // 1_000_000 - 60)
    asked = asked._replace(token=everything(payres, asked.wallet))
    assert shown(send(payres, asked, key)) == shown(first)
    payres.clock.advance(61)
    again = send(payres, asked, key)
    assert again.status_code == 201
    assert again.json()["id"] != first.json()["id"]
    assert shown(send(payres, asked, key)) == shown(again)
    assert made(payres, asked) == 2


def test_body_without_a_wallet_is_another_request_under_the_grant_of_another_wallet(
    shared: Instance, refused: Refused
) -> None:
    asked = making(shared, "incoming payment")._replace(body={"incomingAmount": usd(500)})
    elsewhere = shared.create_wallet(f"thrifty-{next(FRESH)}")
    other_token = access(shared, elsewhere, "incoming-payment")
    key = new_key()
    first = send(shared, asked, key)
    assert first.json()["walletAddress"] == asked.wallet
    refused(send(shared, asked, key, token=other_token), 422, "idempotency_key_reused", reason="body")
    assert shown(send(shared, asked, key)) == shown(first)
    assert send(shared, asked, new_key(), token=other_token).json()["walletAddress"] == elsewhere


def test_client_does_not_meet_the_keys_of_another(shared: Instance) -> None:
    other = shared.new_client(f"rival-{next(FRESH)}")
    asked = making(shared, "payment without a quote")
    theirs = asked._replace(token=everything(shared, asked.wallet, other))
    key = new_key()
    first = send(shared, asked, key)
    second = send(shared, theirs, key, client=other)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["id"] != second.json()["id"]
    assert shown(send(shared, asked, key)) == shown(first)
    assert shown(send(shared, theirs, key, client=other)) == shown(second)


@pytest.mark.parametrize("kind", KINDS)
def test_answer_is_for_who_may_create_it_still(
    shared: Instance, anonymous: httpx2.Client, refused: Refused, kind: str
) -> None:
    asked, key = making(shared, kind), new_key()
    assert send(shared, asked, key).status_code == 201
    elsewhere = shared.create_wallet(f"thrifty-{next(FRESH)}")
    refused(send(shared, asked, key, token=None), 401, "invalid_token", reason="missing_token")
    other = shared.new_client(f"rival-{next(FRESH)}")
    refused(send(shared, asked, key, client=other), 401, "invalid_client", reason="signature_mismatch")
    refused(
        send(shared, asked, key, token=everything(shared, elsewhere)), 403, "insufficient_access", reason="identifier"
    )
    wrong = "quote" if asked.path == "/incoming-payments" else "incoming-payment"
    token = access(shared, asked.wallet, wrong)
    refused(send(shared, asked, key, token=token), 403, "insufficient_access", reason="action")
    shared.write(partial(revoke, token=asked.token))
    refused(send(shared, asked, key), 401, "invalid_token", reason="revoked_token")


def test_token_that_ends_while_the_request_waits_gets_no_answer(
    shared: Instance, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, key = making(shared, "quote"), new_key()
    assert send(shared, asked, key).status_code == 201
    slot = shared.context.idempotency_slots.slot

    @asynccontextmanager
    async def end_and_wait(*key: object) -> AsyncIterator[None]:
        await shared.context.database.write(partial(revoke, token=asked.token))
        async with slot(*key):
            yield

    monkeypatch.setattr(shared.context.idempotency_slots, "slot", end_and_wait)
    refused(send(shared, asked, key), 401, "invalid_token", reason="revoked_token")
    asked = asked._replace(token=everything(shared, asked.wallet))
    refused(send(shared, asked, new_key()), 401, "invalid_token", reason="revoked_token")


def revoke(work: Work, token: str) -> None:
    holder = grants.find_holder(work, hash_secret(token))
    assert holder is not None
    revoke_token(work, holder.token_id)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("incoming payment", {"incomingAmount": usd(501)}),
        ("incoming payment", {"metadata": {"order": 1}}),
        ("quote", {"debitAmount": usd(501)}),
        ("quote", {"receiver": "https://elsewhere.example/incoming-payments/1"}),
        ("payment without a quote", {"debitAmount": usd(499)}),
        ("payment without a quote", {"metadata": {}}),
        ("payment of a quote", {"quoteId": "https://elsewhere.example/quotes/1"}),
    ],
)
def test_other_body_under_the_key_is_refused(shared: Instance, refused: Refused, kind: str, changes: Json) -> None:
    asked, key = making(shared, kind), new_key()
    first = send(shared, asked, key)
    answer = send(shared, asked, key, body=asked.body | changes)
    error = refused(answer, 422, "idempotency_key_reused", reason="body")
    assert error["details"].keys() == {"hint", "reason"}
    assert made(shared, asked) == 1
    assert shown(send(shared, asked, key)) == shown(first)


@pytest.mark.parametrize("metadata", [b'{"\\ud800": 1}', b'{"\xff": 1}', b'{"a": 1', b"[" * 5000 + b"]" * 5000, b'"x"'])
def test_other_body_under_the_key_may_be_malformed(shared: Instance, refused: Refused, metadata: bytes) -> None:
    asked, key = making(shared, "incoming payment"), new_key()
    asked = asked._replace(body=asked.body | {"metadata": {"a": 1}})
    assert send(shared, asked, key).status_code == 201
    raw = json.dumps(asked.body).encode().replace(b'{"a": 1}', metadata)
    answer = shared.client.request("POST", asked.path, token=asked.token, headers={"idempotency-key": key}, raw=raw)
    if answer.status_code != 400:  # metadata is taken as it is, as long as it is JSON
        refused(answer, 422, "idempotency_key_reused", reason="body")
    assert made(shared, asked) == 1


def test_same_members_in_other_bytes_are_another_body(shared: Instance, refused: Refused) -> None:
    asked, key = making(shared, "incoming payment"), new_key()
    assert send(shared, asked, key).status_code == 201
    backwards = dict(reversed(asked.body.items()))
    refused(send(shared, asked, key, body=backwards), 422, "idempotency_key_reused", reason="body")


def test_key_of_another_path_is_refused(shared: Instance, refused: Refused) -> None:
    asked, key = making(shared, "quote"), new_key()
    assert send(shared, asked, key).status_code == 201
    paying = making(shared, "payment without a quote")
    error = refused(send(shared, paying, key), 422, "idempotency_key_reused", reason="path")
    assert "/quotes" in error["details"]["hint"]
    assert made(shared, paying) == 0
    slashed = send(shared, asked, key, path="/quotes/")
    assert slashed.status_code == 201, "a trailing slash leads to the same"
    assert made(shared, asked) == 1


def test_refusal_leaves_the_key_free(shared: Instance, refused: Refused) -> None:
    asked, key = making(shared, "payment without a quote"), new_key()
    much = asked.body | {"debitAmount": usd(100_001)}
    refused(send(shared, asked, key, body=much), 403, "insufficient_funds")
    refused(send(shared, asked, key, body=asked.body | {"debitAmount": usd(0)}), 400, "invalid_amount")
    shared.write(lambda tx: wallets.deposit(tx, asked.wallet.rpartition("/")[2], "0.01"))
    assert send(shared, asked, key, body=much).status_code == 201
    refused(send(shared, asked, key), 422, "idempotency_key_reused", reason="body")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(ZeroDivisionError(), 500, "internal_error"), (Unavailable("The disk is full"), 503, "unavailable")],
)
def test_fault_keeps_neither_the_key_nor_what_was_created(
    shared: Instance, refused: Refused, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, code: str
) -> None:
    asked, key = making(shared, "payment without a quote"), new_key()

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(resources, "cache_response", fail)
        refused(send(shared, asked, key), status, code)
    assert made(shared, asked) == 0
    assert send(shared, asked, key).status_code == 201
    assert made(shared, asked) == 1
    shared.check_ledger()


GOOD_KEYS = [
    (b"8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324"),
    (b'"8e03978e-40d5-43e8-bc93-6894a57f9324"', "8e03978e-40d5-43e8-bc93-6894a57f9324"),
    (b'"a b, c; d"', "a b, c; d"),
    (b'"a \\"b\\" \\\\"', 'a "b" \\'),
    (b'"key";version=1', "key"),
    (b"a", "a"),
    (b"QUJD/+=:~.!#$%&'*^_`|@", "QUJD/+=:~.!#$%&'*^_`|@"),
    (b"a" * MAX_IDEMPOTENCY_KEY_LENGTH, "a" * MAX_IDEMPOTENCY_KEY_LENGTH),
    (b'"' + b"a" * MAX_IDEMPOTENCY_KEY_LENGTH + b'"', "a" * MAX_IDEMPOTENCY_KEY_LENGTH),
]
BAD_KEYS: list[list[bytes]] = [
    *([b""], [b'""'], [b"a" * (MAX_IDEMPOTENCY_KEY_LENGTH + 1)], [b'"%b"' % (b"a" * (MAX_IDEMPOTENCY_KEY_LENGTH + 1))]),
    *([b"a b"], [b"a,b"], [b"a;b"], [b'a"b"'], [b'"a'], [b'"a" b'], [b'"a", "b"'], [b'"a\\b"']),
    *([b'"\xc3\xa9"'], [b"\xc3\xa9"], [b"a\x00"], [b"a\n"], [b"a", b"a"], [b"a", b"b"]),
]


@pytest.mark.parametrize(("value", "key"), GOOD_KEYS)
def test_key_is_a_string_with_or_without_its_quotes(value: bytes, key: str) -> None:
    assert idempotency_key([(b"accept", b"*/*"), (b"idempotency-key", value)]) == key


def test_no_header_is_no_key() -> None:
    assert idempotency_key([]) is None
    assert idempotency_key([(b"x-idempotency-key", b"a")]) is None


@pytest.mark.parametrize("values", BAD_KEYS)
def test_header_that_is_no_key_is_refused(values: Sequence[bytes]) -> None:
    with pytest.raises(DomainError) as caught:
        idempotency_key([(b"idempotency-key", value) for value in values])
    assert (caught.value.status, caught.value.code) == (400, "invalid_request")
    assert caught.value.details == {"field": "Idempotency-Key"}


def test_key_that_is_far_too_long_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser takes milliseconds for the parameters that a header section has room for."""
    monkeypatch.delattr(http_sf, "parse")
    with pytest.raises(DomainError, match="1 to 255 characters"):
        idempotency_key([(b"idempotency-key", b'"a"' + b";a" * 14_000)])


@pytest.mark.parametrize("kind", KINDS)
def test_malformed_key_creates_nothing(shared: Instance, refused: Refused, kind: str) -> None:
    asked = making(shared, kind)
    refused(send(shared, asked, "a b"), 400, "invalid_request", field="Idempotency-Key")
    refused(send(shared, asked, "a b", token=None), 401, "invalid_token")
    assert made(shared, asked) == 0


def test_key_may_be_covered_by_the_signature(shared: Instance, anonymous: httpx2.Client, refused: Refused) -> None:
    asked = making(shared, "payment without a quote")
    url = f"{shared.base_url}{asked.path}"
    content = json.dumps(asked.body).encode()
    headers = {
        "authorization": f"GNAP {asked.token}",
        "content-type": "application/json",
        "content-digest": content_digest(content),
        "idempotency-key": f'"{new_key()}"',
    }
    values = {"@method": "POST", "@target-uri": url} | {
        name: value for name, value in headers.items() if name != "content-type"
    }
    parameters = f';created={shared.clock.now() // SECOND};keyid="key-1"'
    headers |= sign_by_hand(shared.client.private_key, values, parameters)
    first = anonymous.post(url, content=content, headers=headers)
    assert first.status_code == 201, first.text
    assert anonymous.post(url, content=content, headers=headers).content == first.content
    altered = anonymous.post(url, content=content, headers=headers | {"idempotency-key": '"altered"'})
    refused(altered, 401, "invalid_client", reason="signature_mismatch")
    assert made(shared, asked) == 1


def test_grant_requests_have_no_keys(shared: Instance) -> None:
    access = {"access": [{"type": "quote", "actions": ["read"]}]}
    body = {"client": shared.client.wallet_address, "access_token": access}
    headers = [{"idempotency-key": key} for key in ("key", "key", "no key")]
    answers = [shared.client.request("POST", "/", body, headers=one) for one in headers]
    assert len({answer.json()["access_token"]["value"] for answer in answers}) == 3
