"""ILP over HTTP as a peer meets it."""

import concurrent.futures
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from urllib.parse import urlsplit

import httpx2
import pytest
from click.testing import CliRunner

from payres.cli import main
from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import Unavailable
from payres.core.store.accounts import set_rate
from payres.interledger.carrier import NoReply
from payres.interledger.node import node_of
from payres.interledger.oer import decode_reply, encode_packet
from payres.interledger.packets import Code, Fulfill, Prepare, Reject, Reply
from payres.operator import peers
from tests.conftest import Refused
from tests.helpers import TIMEOUT, last_segment
from tests.instance import Instance, run_instance
from tests.interledger.node import LIFETIME, Sender, sender_to
from tests.works import add_usd_peer

OCTETS = "application/octet-stream"
NUMBERS = count(1)


def add_peer(instance: Instance, name: str) -> str:
    """A new peer; the token that it shows."""
    token = f"token-of-{name}"
    tokens = {"outgoing_token": f"token-for-{name}", "incoming_token": token}
    instance.write(lambda tx: add_usd_peer(tx, name, "10000000.00", **tokens))
    return token


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with run_instance(tmp_path_factory.mktemp("ilp") / "payres.db", ilp_address="test.here") as instance:
        add_peer(instance, "first")
        yield instance
        instance.check_ledger()


def incoming_payment(instance: Instance, path: str, wanted: int | None = None) -> Sender:
    """One who pays a new incoming payment, from the credentials in the `methods` of the API."""
    amount = None if wanted is None else {"value": str(wanted), "assetCode": "USD", "assetScale": 2}
    [method] = instance.client.create_incoming_payment(instance.wallet(path), amount)["methods"]
    return sender_to(method["ilpAddress"], node_of(instance.context).credentials, instance.clock)


def post(
    client: httpx2.Client,
    instance: Instance,
    body: Prepare | bytes,
    token: str = "token-of-first",
    number: str | None = None,
    **headers: str,
) -> httpx2.Response:
    content = body if isinstance(body, bytes) else encode_packet(body)
    sent = {"Authorization": f"Bearer {token}", "Content-Type": OCTETS} | headers
    sent |= {"Request-Id": number} if number is not None else {}
    return client.post(f"{instance.base_url}/ilp", content=content, headers={k: v for k, v in sent.items() if v})


def reply_of(answer: httpx2.Response) -> Reply:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == OCTETS
    return decode_reply(answer.content)


def new_wallet(instance: Instance) -> str:
    path = f"wallet-{next(NUMBERS)}"
    instance.create_wallet(path)
    return path


def test_payment_made_over_the_api_is_paid_over_interledger(server: Instance, anonymous: httpx2.Client) -> None:
    path = new_wallet(server)
    sender = incoming_payment(server, path, 100)
    for amount, balance in ((60, "0.60"), (40, "1.00")):
        reply = reply_of(post(anonymous, server, sender.prepare(amount, amount)))
        assert isinstance(reply, Fulfill)
        assert sender.read(reply).prepare_amount == amount
        assert server.balance(path) == balance  # when the answer comes
    assert isinstance(reply_of(post(anonymous, server, sender.prepare(1))), Reject)


SPELLINGS = [
    *({"Content-Type": media} for media in ("application/ilp+octet-stream", "Application/Octet-Stream; charset=x")),
    *({"Authorization": f"{scheme} token-of-first"} for scheme in ("bearer", "BEARER", "Bearer ")),
]


@pytest.mark.parametrize("asset", [Asset("EUR", 2), Asset("USD", 3)])
def test_address_of_another_currency_than_its_wallet_takes_no_money(
    server: Instance, anonymous: httpx2.Client, asset: Asset
) -> None:
    """As one that was given out for another wallet, before a restore used its number again."""
    path = new_wallet(server)
    server.write(lambda tx: set_rate(tx, "USD", "EUR", "10", tx.now))
    bill = last_segment(server.client.create_incoming_payment(server.wallet(path))["id"])
    credentials = node_of(server.context).credentials
    address = credentials.for_payment(bill, asset).ilp_address
    reply = reply_of(post(anonymous, server, sender_to(address, credentials, server.clock).prepare(100, 1)))
    assert isinstance(reply, Reject)
    assert (reply.code, reply.message) == (Code.UNREACHABLE, "The wallet address accepts no money")
    assert server.balance(path) == "0.00"


@pytest.mark.parametrize("headers", SPELLINGS)
def test_spellings_of_headers_that_are_taken(
    server: Instance, anonymous: httpx2.Client, headers: dict[str, str]
) -> None:
    answer = post(anonymous, server, incoming_payment(server, "alice").prepare(1), **headers)
    assert isinstance(reply_of(answer), Fulfill)


@pytest.mark.parametrize("media_type", ["", "application/json", "text/plain", "application/octet-streams"])
def test_other_media_types_are_refused(
    server: Instance, anonymous: httpx2.Client, refused: Refused, media_type: str
) -> None:
    answer = post(anonymous, server, incoming_payment(server, "alice").prepare(1), **{"Content-Type": media_type})
    refused(answer, 400, "invalid_request", field="Content-Type")


@pytest.mark.parametrize(
    ("authorization", "reason"),
    [
        ("", "missing_token"),
        ("Bearer", "missing_token"),
        ("GNAP token-of-first", "missing_token"),
        ("token-of-first", "missing_token"),
        ("Bearer Token-of-first", "unknown_token"),
        ("Bearer token-for-first", "unknown_token"),
        ("Bearer nonsense", "unknown_token"),
        ("Bearer token-of-first more", "unknown_token"),
    ],
)
def test_answer_without_a_token_names_the_one_wanted(
    server: Instance, anonymous: httpx2.Client, authorization: str, reason: str
) -> None:
    answer = post(anonymous, server, b"x" * 70_000, Authorization=authorization, number="number-7")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["request-id"] == "number-7"
    error = answer.json()["error"]
    assert (error["code"], error["details"]["reason"]) == ("invalid_token", reason)


def test_removed_peer_is_out_with_the_next_request(server: Instance, anonymous: httpx2.Client) -> None:
    token = add_peer(server, "leaving")
    sender = incoming_payment(server, "alice")
    assert isinstance(reply_of(post(anonymous, server, sender.prepare(0), token)), Fulfill)
    server.write(lambda tx: peers.change_peer(tx, "leaving", incoming_token="new"))
    assert post(anonymous, server, sender.prepare(0), token).status_code == 401
    assert isinstance(reply_of(post(anonymous, server, sender.prepare(0), "new")), Fulfill)
    server.write(lambda tx: peers.remove_peer(tx, "leaving"))
    assert post(anonymous, server, sender.prepare(0), "new").status_code == 401


def test_packet_whose_body_comes_after_the_removal_is_not_paid(server: Instance) -> None:
    token, path = add_peer(server, "going"), new_wallet(server)
    body = encode_packet(incoming_payment(server, path).prepare(500))
    with request_under_way(server, token, len(body)) as connection:
        words = ["peer", "remove", "going", "--database", server.context.settings.database]
        assert CliRunner().invoke(main, words).stdout == "The peer going is removed\n"
        connection.sendall(body)
        head, _, answer = b"".join(iter(lambda: connection.recv(65536), b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    reply = decode_reply(answer)
    assert isinstance(reply, Reject)
    assert (reply.code, server.balance(path)) == (Code.UNREACHABLE, "0.00")


@contextmanager
def request_under_way(instance: Instance, token: str, size: int) -> Iterator[socket.socket]:
    """A request with a packet of that size, whose token is checked and whose body the server waits for."""
    url = urlsplit(instance.base_url)
    lines = ["POST /ilp HTTP/1.1", f"Host: {url.hostname}", f"Authorization: Bearer {token}", f"Content-Type: {OCTETS}"]
    lines += [f"Content-Length: {size}", "Connection: close", "Expect: 100-continue", "", ""]
    with socket.create_connection((url.hostname, url.port or 0), timeout=TIMEOUT) as connection:
        connection.sendall("\r\n".join(lines).encode())
        # Sent when the endpoint first asks for the body (RFC 9110 section 10.1.1).
        assert connection.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
        yield connection


def test_longest_packet_is_taken_and_a_longer_body_is_not(
    server: Instance, anonymous: httpx2.Client, refused: Refused
) -> None:
    longest = Prepare(0, server.clock.now() + 20 * SECOND, bytes(32), f"test.here.{'a' * 1013}", bytes(32767))
    assert reply_of(post(anonymous, server, longest)) == Reject(Code.UNEXPECTED_PAYMENT, "test.here")
    assert reply_of(post(anonymous, server, bytes(65536))) == Reject(
        Code.INVALID_PACKET, "test.here", "the packet is no Prepare"
    )
    refused(post(anonymous, server, bytes(65537)), 413, "too_large")


def test_other_methods_are_refused(server: Instance, anonymous: httpx2.Client, refused: Refused) -> None:
    for method in ("GET", "PUT", "DELETE"):
        answer = anonymous.request(method, f"{server.base_url}/ilp")
        refused(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == "OPTIONS, POST"


@pytest.mark.parametrize("number", ["1", str(uuid.UUID(int=7)), "x" * 64, "two words ~!"])
def test_number_of_the_request_is_repeated_in_the_answer(
    server: Instance, anonymous: httpx2.Client, number: str
) -> None:
    sender = incoming_payment(server, "alice")
    for amount in (0, 1):
        answer = post(anonymous, server, sender.prepare(amount, fulfillable=False), number=number)
        assert answer.headers["request-id"] == number


@pytest.mark.parametrize("number", ["", "x" * 65, "tab\tinside", "ümlaut"])
def test_number_that_is_not_kept_is_not_promised(server: Instance, anonymous: httpx2.Client, number: str) -> None:
    path = new_wallet(server)
    sender = incoming_payment(server, path)
    for _ in range(2):
        answer = post(anonymous, server, sender.prepare(1), **{"Request-Id": number.encode("latin-1")})  # type: ignore[arg-type]  # httpx2 takes bytes
        assert isinstance(reply_of(answer), Fulfill)
        assert "request-id" not in answer.headers
    assert server.balance(path) == "0.02"


def test_repeated_request_moves_money_once_and_its_number_is_for_no_other(
    server: Instance, anonymous: httpx2.Client, refused: Refused
) -> None:
    path, number = new_wallet(server), str(uuid.uuid4())
    sender = incoming_payment(server, path)
    prepare = sender.prepare(5)
    first = post(anonymous, server, prepare, number=number)
    assert isinstance(reply_of(first), Fulfill)
    assert post(anonymous, server, prepare, number=number).content == first.content
    for lifetime in (LIFETIME, -1):
        answer = post(anonymous, server, sender.prepare(5, lifetime=lifetime), number=number)
        refused(answer, 400, "invalid_request", field="Request-Id")
        assert answer.headers["request-id"] == number
    assert server.balance(path) == "0.05"


def test_answer_that_is_not_known_yet_is_asked_for_again(
    server: Instance, anonymous: httpx2.Client, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing_yet(*_: object) -> NoReply:
        return NoReply.OUTCOME_UNKNOWN

    monkeypatch.setattr(node_of(server.context).connector, "handle", nothing_yet)
    answer = post(anonymous, server, b"", number="some")
    refused(answer, 504, "unavailable")
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["request-id"] == "some"


def test_storage_that_fails_says_so_in_the_reply(
    server: Instance, anonymous: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = incoming_payment(server, "alice")

    async def failing(unit: object) -> None:
        raise Unavailable("The server could not store this")

    monkeypatch.setattr(server.context.database, "write", failing)
    reply = reply_of(post(anonymous, server, sender.prepare(5)))
    assert isinstance(reply, Reject)
    assert reply.code == Code.INTERNAL_ERROR
    assert post(anonymous, server, sender.prepare(5), number="numbered").status_code == 504


def test_fifty_packets_at_once_complete_the_payment_and_no_more(server: Instance) -> None:
    path, wanted, amount = new_wallet(server), 2_000, 150
    sender = incoming_payment(server, path, wanted)
    bodies = [encode_packet(sender.prepare(amount)) for _ in range(50)]
    headers = {"Authorization": "Bearer token-of-first", "Content-Type": OCTETS}
    with (
        httpx2.Client(headers=headers, timeout=TIMEOUT, verify=False) as client,
        concurrent.futures.ThreadPoolExecutor(16) as threads,
    ):
        answers = list(threads.map(lambda body: client.post(f"{server.base_url}/ilp", content=body), bodies))
    fulfilled = sum(isinstance(reply_of(answer), Fulfill) for answer in answers)
    assert fulfilled == wanted // amount  # 13 packets fit, the next would pass the amount by more than rounding does
    assert server.balance(path) == f"{fulfilled * amount / 100:.2f}"
    server.check_ledger()
