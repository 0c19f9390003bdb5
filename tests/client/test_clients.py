"""Making a client: its network, its help, its forms of wallet addresses, and the systems that it runs on."""

import base64
import inspect
import json
import pydoc
import select
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from payres.client import AsyncClient, Client, access, errors
from payres.client.methods import Method, ResourceCalls
from tests.client.clients import Script, opened
from tests.client.test_calls_hostile_servers import Get, by_task, by_thread, flavours
from tests.client.test_client import BASE, BILL, GRANTED, KEY, LISTED, MADE, ONE, QUOTE, WALLET, answer, scripted
from tests.helpers import ROOT, TIMEOUT, Json, free_of_settings
from tests.http_server import reply, serving
from tests.tls import privately_issued, server_tls

DOCUMENT: Json = {"id": WALLET, "assetCode": "USD", "assetScale": 2, "authServer": BASE, "resourceServer": BASE}


class Shop(NamedTuple):
    """A server with a certificate of a private authority, whose own is in the file `ca`."""

    url: str
    ca: Path


def show(handler: BaseHTTPRequestHandler) -> None:
    reply(handler, 200, json.dumps(DOCUMENT).encode())


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    ca, tls = privately_issued(tmp_path, "localhost")
    with serving(show, tls) as port:
        yield Shop(f"https://localhost:{port}/alice", ca)


@contextmanager
def proxy(seen: list[tuple[str, str, str | None]]) -> Iterator[str]:
    """The address of an HTTP proxy, which keeps what it was asked for and the name and password."""

    def forward(handler: BaseHTTPRequestHandler) -> None:
        seen.append((handler.command, handler.path, handler.headers.get("proxy-authorization")))
        if handler.command != "CONNECT":
            return show(handler)
        port = int(handler.path.rpartition(":")[2])
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as server:
            handler.send_response(200)
            handler.end_headers()
            ends = {handler.connection: server, server: handler.connection}
            while True:
                for ready in select.select(list(ends), [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return None
                    ends[ready].sendall(data)

    with serving(forward) as port:
        yield f"127.0.0.1:{port}"


@flavours
def test_private_authority_is_trusted_where_it_is_given(get: Get, shop: Shop) -> None:
    context = ssl.create_default_context(cafile=shop.ca)
    for ca in (shop.ca, str(shop.ca), context):
        assert get(shop.url, ca=ca).id == WALLET


@flavours
def test_private_authority_is_trusted_where_the_variable_names_it(
    get: Get, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(shop.ca))
    assert get(shop.url).id == WALLET


@flavours
@pytest.mark.parametrize(
    ("certificate", "why"), [("private", "unable to get local issuer|self-signed"), ("other", "Hostname mismatch")]
)
def test_certificate_that_is_not_trusted_is_called_so(
    get: Get, shop: Shop, certificate: str, why: str, tmp_path: Path
) -> None:
    says = (
        rf"wallet_address.get at localhost:[0-9]+ was not sent: the certificate of localhost is not trusted \(.*({why})"
    )
    if certificate == "private":
        with pytest.raises(errors.NotSent, match=says) as caught:
            get(shop.url)
        assert "SSL_CERT_FILE" in str(caught.value)
    else:
        tls = server_tls(tmp_path / "other.pem", "other.example")
        with serving(show, tls) as port, pytest.raises(errors.NotSent, match=says):
            get(f"https://localhost:{port}/alice", ca=tmp_path / "other.pem")


@flavours
def test_proxy_tunnels_and_forwards(get: Get, shop: Shop) -> None:
    seen: list[tuple[str, str, str | None]] = []
    with proxy(seen) as address:
        assert get(shop.url, proxy=f"http://{address}", ca=shop.ca).id == WALLET
        assert get("http://wallet.example/alice", proxy=f"http://user:secret@{address}").id == WALLET
    target = shop.url.removeprefix("https://").partition("/")[0]
    assert seen == [
        ("CONNECT", target, None),
        ("GET", "http://wallet.example/alice", f"Basic {base64.b64encode(b'user:secret').decode()}"),
    ]


@flavours
def test_proxy_of_the_environment_is_not_asked(get: Get, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert get(shop.url, ca=shop.ca).id == WALLET


@flavours
def test_proxy_that_refuses_or_is_not_there_sends_nothing(get: Get, shop: Shop) -> None:
    with serving(lambda handler: reply(handler, 407)) as port, pytest.raises(errors.NotSent, match="407"):
        get(shop.url, proxy=f"http://127.0.0.1:{port}")
    with pytest.raises(errors.NotSent):
        get(shop.url, proxy="http://127.0.0.1:1")


@flavours
def test_proxy_that_does_not_answer_ends_with_the_timeout(get: Get, shop: Shop) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        with suppress(OSError):
            while True:
                handler.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
                time.sleep(0.001)

    with serving(drip) as port, pytest.raises(errors.NoAnswer):
        get(shop.url, proxy=f"http://127.0.0.1:{port}", timeout=0.3)


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_network_that_cannot_be_made_is_a_mistake_of_the_app(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    for ca in (tmp_path / "none.pem", wrong, tmp_path):
        with pytest.raises(errors.ConfigurationError, match="No certificates can be read"):
            client(ca=ca)
    unusable = ("https://127.0.0.1:1", "socks5://127.0.0.1:1", "127.0.0.1:1", "http://[::1", "http://", "")
    for address in (*unusable, "http://127.0.0.1:65536", f"http://{'a' * 64}.example"):
        with pytest.raises(errors.ConfigurationError, match="proxy"):
            client(proxy=address)
    for both in ({"ca": str(wrong)}, {"proxy": "http://127.0.0.1:1"}):
        with pytest.raises(errors.ConfigurationError, match="transport"):
            client(transport=Script(), **both)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(errors.ConfigurationError, match="SSL_CERT_FILE"):
        client()


POINTER, POINTED = "$pay.example/alice", f"{BASE}/alice"


@pytest.mark.parametrize(
    ("pointer", "url"),
    [
        (POINTER, POINTED),
        ("$pay.example", f"{BASE}/.well-known/pay"),
        ("$pay.example/", f"{BASE}/.well-known/pay"),
        ("$pay.example:8443/a/b", "https://pay.example:8443/a/b"),
        (POINTED, POINTED),
    ],
)
def test_payment_pointer_is_read_as_a_wallet_address(pointer: str, url: str) -> None:
    script = Script(answer(200, DOCUMENT), answer(200, {"keys": []}), answer(200, {"id": "did:web:x"}))
    with scripted(script) as client:
        client.wallet_address.get(pointer)
        client.wallet_address.get_keys(pointer)
        client.wallet_address.get_did_document(pointer)
    assert [str(request.url) for request in script.asked] == [url, f"{url}/jwks.json", f"{url}/did.json"]


TAKE_WALLETS: dict[str, Callable[[Client], Any]] = {
    "bill": lambda client: client.incoming_payment.create(BASE, "t", wallet_address=POINTER),
    "quote": lambda client: client.quote.create(BASE, "t", wallet_address=POINTER, receiver=f"{BASE}/r"),
    "payment": lambda client: client.outgoing_payment.create(BASE, "t", wallet_address=POINTER, quote_id=ONE),
    "list": lambda client: client.outgoing_payment.list(BASE, "t", wallet_address=POINTER),
    "iterate": lambda client: next(client.outgoing_payment.iterate(BASE, "t", wallet_address=POINTER)),
    "client": lambda client: client.grant.request(BASE, access.quote("create"), client=POINTER),
    "own": lambda client: client.grant.request(BASE, access.quote("create")),
    "identifiers": lambda client: client.grant.request(
        BASE,
        access.quote("create", identifier=POINTER),
        access.incoming_payment("create", identifier=POINTER),
        access.outgoing_payment("create", identifier=POINTER),
        {"type": "quote", "actions": ["create"], "identifier": POINTER},
    ),
}
ANSWERS: Json = {"bill": BILL, "quote": QUOTE, "payment": MADE}


@pytest.mark.parametrize("call", TAKE_WALLETS)
def test_payment_pointer_is_taken_where_a_wallet_address_is(call: str) -> None:
    listed = answer(200, LISTED) if call in ("list", "iterate") else GRANTED
    script = Script(answer(201, ANSWERS[call]) if call in ANSWERS else listed)
    with opened(POINTER, KEY, "key-1", transport=script, is_documented=False) as client:
        TAKE_WALLETS[call](client)
    sent = f"{script.asked[0].url.params} {script.asked[0].content.decode()}"
    assert "$" not in sent
    assert "%24" not in sent
    assert "pay.example" in sent


def methods() -> Iterator[tuple[str, str]]:
    with Client() as client:
        for name, part in vars(client).items():
            if isinstance(part, ResourceCalls):
                kinds = [vars(kind) for kind in type(part).__mro__]
                yield from {(name, one): None for kind in kinds for one in kind if isinstance(kind[one], Method)}


@pytest.mark.parametrize(("part", "name"), list(methods()))
def test_help_of_a_call_shows_its_options(part: str, name: str) -> None:
    with Client() as client:
        call = getattr(getattr(client, part), name)
    shown = inspect.signature(call)
    assert "self" not in shown.parameters
    assert all(one.kind is not one.VAR_KEYWORD for one in shown.parameters.values())
    text = pydoc.plain(pydoc.render_doc(call))
    for one in shown.parameters:
        assert one in text
    for option in {"timeout", "wait", "idempotency_key"} & shown.parameters.keys():
        assert f"`{option}`" in text, option


def test_help_of_a_creation_is_that_of_the_documents() -> None:
    with Client() as client:
        named = inspect.signature(client.quote.create).parameters
    names = ["server", "access_token", "receiver", "wallet_address", "debit_amount", "receive_amount"]
    assert [*named] == [*names, "timeout", "idempotency_key"]


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_options_of_a_client_are_in_its_help(client: Any) -> None:
    text = inspect.getdoc(client.__init__) or ""
    for name in inspect.signature(client).parameters:
        assert f"`{name}`" in text


# What Windows lacks, and what payres has for servers alone.
BARRED = [
    "fcntl",
    "grp",
    "pwd",
    "resource",
    "termios",
    "tty",
    "pty",
    "syslog",
    "readline",
    "uvloop",
    "httptools",
    "nacl",
]
ELSEWHERE = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[2:]))
import asyncio
from payres.client import AsyncClient, Client, Grant, PendingGrant, access, decimal, errors, money, webhooks

url, key = sys.argv[1], bytes(range(32))
with Client(url, key, "key-1", timeout=60) as client:
    alice = client.wallet_address.get(url)
    try:
        client.quote.create(url, "t", wallet_address=url, receiver=url, debit_amount=money("5.00", alice))
    except errors.InvalidAnswer as error:
        print(error.status)

async def main():
    async with AsyncClient(url, key, "key-1", timeout=60) as client:
        print((await client.wallet_address.get(url)).asset_code)

asyncio.run(main())
print(sorted({name.split(".")[1] for name in sys.modules if name.startswith("payres.")}))
"""


def test_client_needs_nothing_that_windows_and_macos_lack() -> None:
    with serving(show) as port:
        command = [sys.executable, "-W", "error", "-c", ELSEWHERE, f"http://127.0.0.1:{port}/alice", *BARRED]
        ran = subprocess.run(
            command, capture_output=True, check=False, timeout=TIMEOUT, cwd=ROOT, env=free_of_settings(), text=True
        )
    assert ran.returncode == 0, ran.stderr
    status, asset, rooms = ran.stdout.splitlines()
    assert (status, asset) == ("200", "USD")
    assert not {"store", "http", "cli", "settings", "application"} & set(json.loads(rooms.replace("'", '"')))


def test_wallet_of_both_flavours_is_the_same() -> None:
    with serving(show) as port:
        url = f"http://127.0.0.1:{port}/alice"
        assert by_thread(url) == by_task(url)
