"""The client against servers that mean it harm: each call ends, with an error of the client."""

import gzip
import itertools
import json
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx2
import pytest

from payres.client import PendingGrant, access, checks, errors
from payres.signatures.jwk import generate_private_key
from tests.client.both import Script, opened
from tests.client.test_client import BASE, MADE, NEXT, TOKEN, WALLET, answer, flavours, scripted
from tests.http_server import serving

BOMB = gzip.compress(gzip.compress(b"[" * checks.MOST_BYTES * 4))


def expect(raised: type[Exception], match: str, flavour: str, port: int, timeout: float) -> None:
    """Asks a server on this machine for a wallet address, in vain."""
    url = f"http://127.0.0.1:{port}/alice"
    options: dict[str, Any] = {"is_documented": False, "max_retries": 0, "timeout": timeout}
    with opened(flavour, url, generate_private_key(), "key-1", **options) as client, pytest.raises(raised, match=match):
        client.wallet_address.get(url)


@flavours
@pytest.mark.parametrize("status", [200, 400])
def test_body_that_is_too_long_is_not_kept(flavour: str, status: int) -> None:
    sent = []

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.end_headers()
        try:
            for number in itertools.count():
                handler.wfile.write(b"[" * 1024 * 1024)
                sent.append(number)
        except OSError:
            pass

    with serving(send) as port:
        expect(errors.InvalidAnswer, "longer than", flavour, port, 30)
    assert len(sent) < 100


@flavours
def test_bomb_is_not_unpacked(flavour: str) -> None:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip, gzip")
        handler.send_header("Content-Length", str(len(BOMB)))
        handler.end_headers()
        handler.wfile.write(BOMB)

    with serving(send) as port:
        expect(errors.InvalidAnswer, "longer than", flavour, port, 30)


@flavours
def test_body_that_drips_ends_with_the_timeout(flavour: str) -> None:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b" ")
        except OSError:
            pass

    with serving(send) as port:
        expect(errors.AnswerLost, "did not end in time", flavour, port, 1)


@flavours
@pytest.mark.parametrize(
    "url", ["https://a..b/", f"https://{'a' * 70}.example/", "https://pay.example:99999/", "https://x/\ud800"]
)
def test_url_that_no_socket_takes_is_no_url(flavour: str, url: str) -> None:
    with opened(flavour, WALLET, generate_private_key(), "key-1") as client:
        for get in (client.wallet_address.get, client.wallet_address.get_keys):
            with pytest.raises(errors.ConfigurationError):
                get(url)


@pytest.mark.parametrize("granted", [5, None, {"type": "quote"}, ["quote"]])
def test_access_that_no_grant_can_keep_is_an_invalid_answer(granted: Any) -> None:
    script = Script(answer(200, NEXT | {"access_token": TOKEN | {"access": granted}}))
    with scripted("sync", script) as client, pytest.raises(errors.InvalidAnswer, match="access"):
        client.grant.request(BASE, access.quote("create"))


@pytest.mark.parametrize("seconds", [10**400, 10**20])
def test_server_that_asks_to_wait_for_ever_is_not_waited_for(seconds: int) -> None:
    pending = PendingGrant(continue_uri=f"{BASE}/continue/1", continue_token="c")
    early = {"error": {"code": "too_fast", "details": {"wait": seconds}}}
    for body, status in ((early, 400), ({"continue": NEXT["continue"] | {"wait": seconds}}, 200)):
        script = Script(httpx2.Response(status, content=json.dumps(body).encode()))
        with scripted("sync", script) as client, pytest.raises(errors.WaitTimeout):
            client.grant.wait(pending, timeout=1.5)
        assert len(script.asked) == 1


@pytest.mark.parametrize("url", ["https://[shop/?hash=x&interact_ref=y", "https://shop℀.example/"])
def test_return_to_what_is_no_url_continues_nothing(url: str) -> None:
    pending = PendingGrant(continue_uri=f"{BASE}/continue/1", continue_token="c", server=BASE, client_nonce="n")
    script = Script()
    with scripted("sync", script) as client, pytest.raises(errors.HashMismatch):
        client.grant.finish(pending, url)
    assert not script.asked


def test_pages_without_payments_end() -> None:
    numbers = itertools.count()

    def respond(_: httpx2.Request) -> httpx2.Response:
        number = next(numbers)
        result = [MADE] if number == 0 else []
        pagination = {"hasNextPage": True, "hasPreviousPage": True, "endCursor": str(number)}
        return answer(200, {"pagination": pagination, "result": result})

    with scripted("sync", httpx2.MockTransport(respond)) as client:
        assert len(list(client.outgoing_payment.iterate(BASE, "token", wallet_address=WALLET))) == 1
    assert next(numbers) == 2
