import json
import socket
from collections.abc import Callable
from typing import Any

import pytest

from payres.core.http.protocol import PIECE_BYTES, HttpProtocol
from payres.core.protocol.limits import MAX_HEADER_BYTES
from tests.core.http.conftest import GET, LAST, POST, check_refusal
from tests.helpers import read_to_end
from tests.instance import Instance
from tests.raw_requests import answers_of

CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"


def section(size: int, method: str = "GET", content: int = 0) -> bytes:
    """A header section of just so many bytes."""
    start = f"{method} /healthz HTTP/1.1\r\nhost: h\r\ncontent-length: {content}\r\nx: ".encode()
    return start + b"a" * (size - len(start) - 4) + b"\r\n\r\n"


@pytest.fixture
def dispatched(shared: Instance, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the requests that the application gets."""
    paths: list[str] = []
    start: Callable[..., None] = HttpProtocol._start_asgi_task

    def record(protocol: HttpProtocol, cycle: Any, app: Any) -> None:
        paths.append(cycle.scope["path"])
        start(protocol, cycle, app)

    monkeypatch.setattr(HttpProtocol, "_start_asgi_task", record)
    return paths


# What does not say plainly where a body ends.
LENGTHS = (
    *(b"-1", b"+5", b"0x5", b"99999999999999999999999", b"1, 1", b"1\r\ncontent-length: 1", b"1\r\ncontent-length: 2"),
    b"5\r\ntransfer-encoding: chunked",
)
CODINGS = (
    *(b"chunked, identity", b"chunked\r\ntransfer-encoding: identity", b"chunked\r\ntransfer-encoding: chunked", b""),
    b"chunked\r\ncontent-length: 5",
)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS on the plain port
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/3.7\r\n\r\n",
        b"GET  /a b HTTP/1.1\r\n\r\n",
        b"BREW / HTTP/1.1\r\n\r\n",
        b"GET \xff HTTP/1.1\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
        b"CONNECT h:1 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nna me: v\r\n\r\n",
        b"GET / HTTP/1.1\r\nx: a\x00b\r\n\r\n",
        b"GET /healthz HTTP/1.1\nhost: h\n\n",
        b"GET /healthz HTTP/1.1\r\nhost: h\nx: y\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: h\r\nx: y\r\n z\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        *(b"GET /healthz HTTP/%b\r\nhost: h\r\n\r\n" % version for version in (b"0.9", b"1.2", b"2.0", b"3.0")),
        *(POST + b"content-length: %b\r\n\r\n" % length for length in LENGTHS),
        *(POST + b"transfer-encoding: %b\r\n\r\n0\r\n\r\n" % codings for codings in CODINGS),
        *(POST + line + b"\r\n\r\n0\r\n\r\n" for line in (b"transfer-encoding : chunked", b"x: a\rcontent-length: 5")),
    ],
    ids=repr,
)
def test_what_is_no_http_is_refused_in_json_and_nothing_after_it_is_read(
    connection: socket.socket, dispatched: list[str], garbage: bytes
) -> None:
    connection.sendall(garbage + GET * 3)
    [answer] = answers_of(connection)
    check_refusal(answer, 400, "invalid_request")
    assert not dispatched


HOSTS = (
    *(b"wallet.example", b"wallet.example:8080", b"wallet.example:", b"WALLET_1.example.", b"127.0.0.1:80", b""),
    *(b"[::1]", b"[::1]:8080", b"[fe80::1%25eth0]:80", b"h \t"),
)
NO_HOSTS = (
    *(b"a b", b"a, b", b"a/b", b"user@a", b"a:80:81", b"a:port", b"http://a", b"[::1", b"::1", b"a#b", b"a?b"),
    *(b"\xe4", b"a\\b", b"a:80 b", b'"a"', b"<a>"),
)
NO_CODINGS = (
    *([b"gzip, chunked"], [b"identity", b"chunked"], [b"xchunked"], [b",chunked"], [b"chunked;q=1"], [b"identity"]),
)


@pytest.mark.parametrize(
    ("head", "hint"),
    [
        *((b"GET /healthz HTTP/1.1\r\nhost: %b\r\n" % host, b"one Host") for host in NO_HOSTS),
        *((b"GET %b HTTP/1.1\r\n" % target, b"one Host") for target in (b"/healthz", b"http://h/healthz")),
        *(
            (b"GET /healthz HTTP/%b\r\nhost: h\r\nHost: %b\r\n" % (version, second), b"one Host")
            for version in (b"1.0", b"1.1")
            for second in (b"h", b"other", b"")
        ),
        *(
            (POST + b"".join(b"transfer-encoding: %b\r\n" % one for one in codings), b"chunked")
            for codings in NO_CODINGS
        ),
        # A reader of HTTP/1.0 on the way would have looked for the end elsewhere (RFC 9112 section 6.1).
        (b"POST / HTTP/1.0\r\nhost: h\r\ntransfer-encoding: chunked\r\n", b"chunked"),
    ],
)
def test_request_that_two_may_understand_in_two_ways_is_refused(
    connection: socket.socket, dispatched: list[str], head: bytes, hint: bytes
) -> None:
    connection.sendall(head + b"\r\n0\r\n\r\n" + GET)
    [answer] = answers_of(connection)
    check_refusal(answer, 400, "invalid_request")
    assert hint in answer.body
    assert not dispatched


def test_request_that_all_understand_alike_is_taken(connection: socket.socket) -> None:
    for host in HOSTS:
        connection.sendall(b"GET /healthz HTTP/1.1\r\naccept: */*\r\nhost: %b\r\n\r\n" % host)
    for coding in (b"chunked", b"Chunked", b"chunked "):
        connection.sendall(POST + b"transfer-encoding: %b\r\n\r\n2\r\n{}\r\n0\r\n\r\n" % coding)
    connection.sendall(LAST)
    assert [answer.status for answer in answers_of(connection)] == [200] * len(HOSTS) + [401] * 3 + [200]


@pytest.mark.parametrize("before", [b"", GET, GET * 2])
@pytest.mark.parametrize("broken", [b"5\r\nhell", b""])
def test_request_that_breaks_inside_its_body_is_refused_once(
    connection: socket.socket, before: bytes, broken: bytes
) -> None:
    connection.sendall(before + CHUNKED + broken + b"\r\nno length\r\n" + GET)
    *good, last = answers_of(connection)
    assert [answer.status for answer in good] == [200] * before.count(b"GET")
    check_refusal(last, 400, "invalid_request")


@pytest.mark.parametrize("rest", [b"zz\r\n", b"0\r\n" + b"a: b\r\n" * 9000], ids=["no chunk", "endless trailers"])
def test_request_that_was_answered_before_its_body_broke_has_one_answer(connection: socket.socket, rest: bytes) -> None:
    connection.sendall(b"POST /nope/jwks.json HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    begun = connection.recv(65536)
    assert begun.startswith(b"HTTP/1.1 404 ")
    try:
        connection.sendall(rest)
        ended = begun + read_to_end(connection)
    except ConnectionError:
        return  # it was closed at once
    assert ended.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize("size", [1024, MAX_HEADER_BYTES - 1, MAX_HEADER_BYTES])
def test_header_section_up_to_the_limit_is_taken(connection: socket.socket, size: int, pieces: int) -> None:
    for _ in range(2):
        send_in_pieces(connection, section(size), pieces)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize("size", [MAX_HEADER_BYTES + 1, MAX_HEADER_BYTES * 2, MAX_HEADER_BYTES * 20])
@pytest.mark.parametrize("content", [0, 100_000])
def test_longer_header_section_is_refused(
    connection: socket.socket, dispatched: list[str], size: int, pieces: int, content: int
) -> None:
    send_in_pieces(connection, section(size, "POST", content) + b"b" * content + GET, pieces)
    [answer] = answers_of(connection)
    check_refusal(answer, 431, "too_large")
    assert not dispatched


@pytest.mark.parametrize("before", [b"", GET])
@pytest.mark.parametrize(
    ("start", "endless"),
    [
        (b"", b"\r\n"),
        (b"GET /", b"a"),
        (b"GET / HTTP/1.1\r\nx", b"a"),
        (b"GET / HTTP/1.1\r\nx: ", b"a"),
        (b"GET / HTTP/1.1\r\n", b"x: a\r\n"),
        (CHUNKED + b"0\r\n", b"x: a\r\n"),
        (CHUNKED + b"0\r\nx: ", b"a"),
        (CHUNKED + b"1;x=", b"a"),
    ],
)
def test_header_section_that_never_ends_is_refused_soon(
    connection: socket.socket, before: bytes, start: bytes, endless: bytes
) -> None:
    """So are trailers and the extensions of a chunk, which nobody reads."""
    connection.sendall(before + start)
    most = MAX_HEADER_BYTES + 2 * PIECE_BYTES  # and no more follows, so that the answer does not wait for an end
    for _ in range(most // 1024):
        connection.sendall(endless * (1024 // len(endless) + 1))
    *good, last = answers_of(connection)
    assert [answer.status for answer in good] == [200] * before.count(b"GET")
    check_refusal(last, 431, "too_large")


@pytest.mark.parametrize("expect", [b"", b"expect: 100-continue\r\n"])
@pytest.mark.parametrize("path", [b"/quotes", b"/", b"/token/1", b"/interact/1/1"])
def test_body_that_is_declared_too_long_is_refused_by_its_length_alone(
    shared: Instance, connection: socket.socket, path: bytes, expect: bytes
) -> None:
    """None of it is asked for or waited for."""
    form = b"application/x-www-form-urlencoded" if path.startswith(b"/interact") else b"application/json"
    length = shared.context.settings.max_body_bytes + 1
    connection.sendall(b"POST %b HTTP/1.1\r\nhost: h\r\ncontent-type: %b\r\n%b" % (path, form, expect))
    connection.sendall(b"content-length: %d\r\n\r\n" % length)
    begun = connection.recv(65536)
    assert begun.startswith(b"HTTP/1.1 413 ")
    assert (b"connection: close" in begun) == (b"\r\nkeep-alive:" not in begun.lower()) == bool(expect)


def test_trailers_are_no_headers(shared: Instance, connection: socket.socket) -> None:
    """What came after the body was not there when the request was judged."""
    trailer = b"authorization: GNAP token\r\naccept: text/plain\r\n"
    connection.sendall(CHUNKED + b"2\r\n{}\r\n0\r\n" + trailer + b"\r\n" + LAST)
    refusal, health = answers_of(connection)
    assert json.loads(refusal.body)["error"]["details"]["reason"] == "missing_token"
    assert health.status == 200


@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
def test_offer_of_another_protocol_is_passed_over(connection: socket.socket, protocol: bytes, pieces: int) -> None:
    offer = GET.replace(b"\r\n\r\n", b"\r\nconnection: upgrade\r\nupgrade: %b\r\n\r\n" % protocol)
    send_in_pieces(connection, offer * 3 + LAST, pieces)
    assert [answer.status for answer in answers_of(connection)] == [200] * 4


OFFER = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: %b\r\nhttp2-settings: AAMAAABk\r\n"
FRAMED = {
    "length": b"content-length: %d\r\n\r\n%b" % (len(GET), GET),
    "chunks": b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(GET), GET),
}


@pytest.mark.parametrize("pieces", [1, 2, 50])
@pytest.mark.parametrize("framing", FRAMED)
@pytest.mark.parametrize("protocol", [b"h2c", b"websocket", b"TLS/1.0", b"h2c, HTTP/3.0"])
def test_body_behind_an_offer_is_read_as_the_body(
    connection: socket.socket, dispatched: list[str], protocol: bytes, framing: str, pieces: int
) -> None:
    """The parser alone would take it for the other protocol, so that a proxy and the server saw different requests."""
    send_in_pieces(connection, (POST + OFFER % protocol + FRAMED[framing]) * 2 + LAST, pieces)
    *answers, last = answers_of(connection)
    assert [json.loads(answer.body)["error"]["code"] for answer in answers] == ["invalid_token"] * 2
    assert last.status == 200
    assert dispatched == ["/quotes", "/quotes", "/healthz"]


@pytest.mark.parametrize("content", [b"\r\n", b"content-length: 1\r\n\r\n1"])
@pytest.mark.parametrize("line", [b"HTTP/1.1\r\nconnection: close, upgrade", b"HTTP/1.0\r\nconnection: upgrade"])
def test_offer_in_a_last_request_is_passed_over(connection: socket.socket, line: bytes, content: bytes) -> None:
    connection.sendall(b"GET /healthz %b\r\nhost: h\r\nupgrade: h2c\r\n%b" % (line, content))
    [answer] = answers_of(connection)
    assert answer.status == 200


@pytest.mark.parametrize("lengths", LENGTHS)
def test_offer_hides_no_unclear_length(connection: socket.socket, dispatched: list[str], lengths: bytes) -> None:
    connection.sendall(POST + OFFER % b"h2c" + b"content-length: %b\r\n\r\n" % lengths + LAST)
    [answer] = answers_of(connection)
    check_refusal(answer, 400, "invalid_request")
    assert not dispatched


def test_offer_counts_for_the_length_of_a_head(connection: socket.socket) -> None:
    connection.sendall(GET.replace(b"\r\n\r\n", b"\r\n" + OFFER % (b"a" * MAX_HEADER_BYTES) + b"\r\n") + LAST)
    [answer] = answers_of(connection)
    check_refusal(answer, 431, "too_large")


@pytest.mark.parametrize("head", [b"", OFFER % b"h2c"])
def test_tunnel_is_refused(connection: socket.socket, dispatched: list[str], head: bytes) -> None:
    connection.sendall(b"CONNECT /healthz HTTP/1.1\r\nhost: h\r\n" + head + b"content-length: 1\r\n\r\n" + LAST)
    [answer] = answers_of(connection)
    check_refusal(answer, 400, "invalid_request")
    assert not dispatched


def send_in_pieces(connection: socket.socket, data: bytes, pieces: int) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    size = -(-len(data) // pieces)
    for start in range(0, len(data), size):
        connection.sendall(data[start : start + size])
