"""The official clients other than JavaScript's: requests shaped as theirs are, through the whole of Open Payments.

Each class below builds addresses, headers, bodies and signatures as one SDK does, peculiarities included. The vectors
at the end hold the builders to signatures that were made elsewhere.
"""

import json
import re
from abc import abstractmethod
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha512
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from payres.signatures.jwk import JWK, generate_private_key, jwk_from_public_bytes
from payres.testing.instance import Instance
from tests.helpers import TIMEOUT, Json
from tests.http_server import reply, serving

FINISH = {"method": "redirect", "uri": "https://shop.example/finish", "nonce": "client-nonce"}
CONTENT = ["content-digest", "content-length", "content-type"]


def digest(content: bytes) -> str:
    return f"sha-512=:{b64encode(sha512(content).digest()).decode()}:"


def ok(answer: tuple[int, Json], status: int = 200) -> Json:
    """The body of an answer that must have exactly this status, as the SDKs check it."""
    assert answer[0] == status, answer
    return answer[1]


class Wire(NamedTuple):
    """A request as it goes out; `url` is where it goes, whatever was signed."""

    method: str
    url: str
    headers: dict[str, str]
    content: bytes


class Sdk:
    """What the SDKs have in common. `client` is the client's wallet address."""

    def __init__(self, client: str, private_key: Ed25519PrivateKey, kid: str, now: Callable[[], int]) -> None:
        self.client = client
        self.private_key = private_key
        self.kid = kid
        self.now = now

    # Operations, with the address and body that each SDK gives them.

    def request_grant(self, auth_server: str, access: list[Json], interact: Json | None = None) -> Json:
        body: Json = {"client": self.client, "access_token": {"access": access}}
        return ok(self.send("POST", auth_server, body | ({"interact": interact} if interact else {})))

    def continue_grant(self, follow_up: Json, reference: str | None = None) -> Json:
        body = {"interact_ref": reference} if reference else None
        return ok(self.send("POST", follow_up["uri"], body, follow_up["access_token"]["value"]))

    def cancel_grant(self, follow_up: Json) -> None:
        ok(self.send("DELETE", follow_up["uri"], None, follow_up["access_token"]["value"]), 204)

    def rotate(self, token: Json) -> Json:
        rotated: Json = ok(self.send("POST", token["manage"], None, token["value"]))["access_token"]
        return rotated

    def revoke(self, token: Json) -> None:
        ok(self.send("DELETE", token["manage"], None, token["value"]), 204)

    def create(self, resource_server: str, collection: str, body: Json, token: str) -> Json:
        return ok(self.send("POST", f"{resource_server}/{collection}", body, token), 201)

    def read(self, url: str, token: str) -> Json:
        return ok(self.send("GET", url, None, token))

    def complete(self, url: str, token: str) -> Json:
        return ok(self.send("POST", f"{url}/complete", None, token))

    def list_page(self, resource_server: str, collection: str, query: dict[str, str], token: str) -> Json:
        return ok(self.send("GET", f"{resource_server}/{collection}?{urlencode(query)}", None, token))

    # How a request is written and signed.

    def send(self, method: str, url: str, body: Json | None = None, token: str | None = None) -> tuple[int, Json]:
        """Status and body of the answer to exactly the request that `prepare` makes."""
        wire = self.prepare(method, url, self.encode(body) if body is not None else b"", token)
        parts = urlsplit(wire.url)
        connection = HTTPConnection(parts.netloc, timeout=TIMEOUT)
        try:
            target = parts.path + (f"?{parts.query}" if parts.query else "")
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in wire.headers.items():
                connection.putheader(name, value)
            connection.endheaders(wire.content or None)
            answer = connection.getresponse()
            assert answer.getheader("location") is None
            return answer.status, json.loads(answer.read() or b"{}")
        finally:
            connection.close()

    def prepare(self, method: str, url: str, content: bytes, token: str | None) -> Wire:
        headers = self.headers(url, content, token)
        if method == "POST" and not content:
            headers |= {"Content-Length": "0"}
        values = {name.lower(): value for name, value in headers.items()}
        values |= {"@method": method, "@target-uri": self.signed_url(url)}
        components = self.components(values, content)
        parameters = f"({self.listed(components)});{self.parameters()}"
        lines = [f'"{name}": {values[name]}' for name in components]
        base = "\n".join([*lines, f'"@signature-params": {parameters}'])
        signature = b64encode(self.private_key.sign(base.encode())).decode()
        headers |= {"Signature-Input": f"sig1={parameters}", "Signature": self.signature(signature)}
        return Wire(method, url, headers, content)

    def encode(self, body: Json) -> bytes:
        return msgspec.json.encode(body)

    @abstractmethod
    def headers(self, url: str, content: bytes, token: str | None) -> dict[str, str]:
        """Everything but the signature."""

    def signed_url(self, url: str) -> str:
        return url

    def components(self, values: dict[str, str], content: bytes) -> list[str]:
        authorization = ["authorization"] if "authorization" in values else []
        return ["@method", "@target-uri", *authorization, *(CONTENT if content else [])]

    def listed(self, components: list[str]) -> str:
        return " ".join(f'"{name}"' for name in components)

    def parameters(self) -> str:
        return f'created={self.now()};keyid="{self.kid}";alg="ed25519"'

    def signature(self, encoded: str) -> str:
        return f"sig1=:{encoded}:"


class Php(Sdk):
    """One token at a time, kept from call to call; a slash after grant and continuation URLs; a digest of nothing."""

    kept: str | None = None

    def request_grant(self, auth_server: str, access: list[Json], interact: Json | None = None) -> Json:
        return super().request_grant(slashed(auth_server), access, interact)

    def continue_grant(self, follow_up: Json, reference: str | None = None) -> Json:
        body = ({"interact_ref": reference} if reference else {}) | {"client": self.client}
        return ok(self.send("POST", slashed(follow_up["uri"]), body, follow_up["access_token"]["value"]))

    def rotate(self, token: Json) -> Json:
        # With whichever token was used last.
        rotated: Json = ok(self.send("POST", token["manage"]))["access_token"]
        return rotated

    def headers(self, url: str, content: bytes, token: str | None) -> dict[str, str]:
        self.kept = token or self.kept
        sent = {
            "User-Agent": "OP-PHP-SDK-Client",
            "Accept": "application/json",
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            "Host": urlsplit(url).hostname or "",  # without the port
            "Content-Digest": digest(content),
        }
        return sent | ({"Authorization": f"GNAP {self.kept}"} if self.kept else {})

    def encode(self, body: Json) -> bytes:
        return json.dumps(body, separators=(",", ":")).encode()

    def parameters(self) -> str:
        return f'keyid="{self.kid}";created={self.now()}'

    def signature(self, encoded: str) -> str:
        return f"sig1={encoded}"


class Go(Sdk):
    """Names its client as an object, continues with `{}`, and sorts the query."""

    def request_grant(self, auth_server: str, access: list[Json], interact: Json | None = None) -> Json:
        body: Json = {"access_token": {"access": access}, "client": {"walletAddress": self.client}}
        return ok(self.send("POST", auth_server, body | ({"interact": interact} if interact else {})))

    def continue_grant(self, follow_up: Json, reference: str | None = None) -> Json:
        body = {"interact_ref": reference} if reference else {}
        return ok(self.send("POST", follow_up["uri"], body, follow_up["access_token"]["value"]))

    def list_page(self, resource_server: str, collection: str, query: dict[str, str], token: str) -> Json:
        return super().list_page(resource_server, collection, dict(sorted(query.items())), token)

    def headers(self, url: str, content: bytes, token: str | None) -> dict[str, str]:
        sent = {"Host": urlsplit(url).netloc, "User-Agent": "Go-http-client/1.1", "Accept-Encoding": "gzip"}
        if token:
            sent["Authorization"] = f"GNAP {token}"
        if content:
            sent |= {"Content-Digest": digest(content), "Content-Type": "application/json"}
            sent["Content-Length"] = str(len(content))
        return sent


class Rust(Sdk):
    """Component names without quotes, a signature without a label; the content type is covered with or without one."""

    def headers(self, url: str, content: bytes, token: str | None) -> dict[str, str]:
        sent = {"content-type": "application/json", "accept": "*/*", "host": urlsplit(url).netloc}
        if token:
            sent["authorization"] = f"GNAP {token}"
        if content:
            sent |= {"content-length": str(len(content)), "content-digest": digest(content)}
        return sent

    def components(self, values: dict[str, str], content: bytes) -> list[str]:
        authorization = ["authorization"] if "authorization" in values else []
        of_content = ["content-digest", "content-length"] if content else []
        return ["@method", "@target-uri", "content-type", *authorization, *of_content]

    def listed(self, components: list[str]) -> str:
        return " ".join(components)

    def parameters(self) -> str:
        return f'created={self.now()};keyid="{self.kid}"'

    def signature(self, encoded: str) -> str:
        return encoded


class DotNet(Sdk):
    """A slash after every resource's URL, so two before `complete`; signs the query with its colons unescaped."""

    def read(self, url: str, token: str) -> Json:
        return super().read(slashed(url), token)

    def complete(self, url: str, token: str) -> Json:
        return super().complete(slashed(url), token)

    def headers(self, url: str, content: bytes, token: str | None) -> dict[str, str]:
        sent = {"Host": urlsplit(url).netloc, "Accept": "application/json"}
        if token:
            sent["Authorization"] = f"GNAP {token}"
        if content:
            sent |= {"Content-Type": "application/json", "Content-Digest": digest(content)}
            sent["Content-Length"] = str(len(content))
        elif url.endswith("/complete") or "/token/" in url:
            sent["Content-Type"] = "application/json; charset=utf-8"
        return sent

    def signed_url(self, url: str) -> str:
        path, mark, query = url.partition("?")
        return path + mark + query.replace("%3A", ":")


class Python(Sdk):
    """Content before credentials before the derived components; token URLs put together again; no content type without
    content. Its client has a wallet address without a path, whose slash the SDK adds."""

    def continue_grant(self, follow_up: Json, reference: str | None = None) -> Json:
        body = {"interact_ref": reference} if reference else {}
        return ok(self.send("POST", follow_up["uri"], body, follow_up["access_token"]["value"]))

    def rotate(self, token: Json) -> Json:
        origin, _, token_id = token["manage"].partition("/token/")
        return super().rotate(token | {"manage": f"{origin.rstrip('/')}/token/{token_id}"})

    def headers(self, url: str, content: bytes, token: str | None) -> dict[str, str]:
        sent = {
            "Host": urlsplit(url).netloc,
            "Accept": "*/*",
            "Accept-Encoding": "gzip, deflate",
            "Connection": "keep-alive",
            "User-Agent": "python-httpx/0.28.1",
        }
        if content:
            sent |= {"Content-Type": "application/json", "Content-Length": str(len(content))}
        if token:
            sent["Authorization"] = f"GNAP {token}"
        return sent | ({"Content-Digest": digest(content)} if content else {})

    def components(self, values: dict[str, str], content: bytes) -> list[str]:
        authorization = ["authorization"] if "authorization" in values else []
        of_content = ["content-type", "content-digest", "content-length"] if content else []
        return [*of_content, *authorization, "@method", "@target-uri"]


def slashed(url: str) -> str:
    return url if url.endswith("/") else f"{url}/"


SDKS = [Php, Go, Rust, DotNet, Python]


@pytest.fixture(scope="module")
def remote() -> Iterator[tuple[str, Ed25519PrivateKey, JWK]]:
    """A client whose wallet address, `http://host/`, and keys are published by another server."""
    private_key = generate_private_key()
    jwk = jwk_from_public_bytes("remote-key", private_key.public_key().public_bytes_raw())
    with publish(jwk) as address:
        yield address, private_key, jwk


@contextmanager
def publish(jwk: JWK) -> Iterator[str]:
    documents: dict[str, Any] = {"/jwks.json": {"keys": [jwk]}}
    with serving(lambda handler: reply(handler, 200, msgspec.json.encode(documents[handler.path]))) as port:
        address = f"http://127.0.0.1:{port}/"
        documents["/"] = {
            "id": address,
            "publicName": "Root Shop",
            "assetCode": "USD",
            "assetScale": 2,
            "authServer": address,
            "resourceServer": address.rstrip("/"),
        }
        yield address


@pytest.fixture(params=SDKS, ids=lambda sdk: sdk.__name__)
def sdk(request: pytest.FixtureRequest, shared: Instance, remote: tuple[str, Ed25519PrivateKey, JWK]) -> Sdk:
    kind: type[Sdk] = request.param

    def now() -> int:
        return shared.clock.now() // 1_000_000

    if kind is Python:
        address, private_key, jwk = remote
        return kind(address, private_key, jwk.kid, now)
    client = shared.client
    return kind(client.wallet_address, client.private_key, client.jwk.kid, now)


class Place(NamedTuple):
    """Where a payment happens, as the wallet address tells it."""

    payer: str
    payee: str
    auth_server: str
    resource_server: str


@pytest.fixture
def place(shared: Instance, request: pytest.FixtureRequest) -> Place:
    urls, name = shared.context.urls, re.sub(r"\W|_", "-", request.node.name)
    payer, payee = shared.create_wallet(f"{name}-payer", deposit="10.00"), shared.create_wallet(f"{name}-payee")
    return Place(payer, payee, urls.auth_server, urls.base)


def spending(wallet_address: str) -> list[Json]:
    actions = ["create", "read", "list"]
    amount = {"value": "1000", "assetCode": "USD", "assetScale": 2}
    limits = {"debitAmount": amount}
    return [{"type": "outgoing-payment", "actions": actions, "identifier": wallet_address, "limits": limits}]


def consented(shared: Instance, sdk: Sdk, place: Place, access: list[Json]) -> Json:
    """The answer to the continuation of a grant that the owner approved."""
    asked = sdk.request_grant(place.auth_server, access, {"start": ["redirect"], "finish": FINISH})
    finished = shared.approve(asked["interact"]["redirect"])
    assert finished is not None
    reference = parse_qs(urlsplit(finished).query)["interact_ref"][0]
    return sdk.continue_grant(asked["continue"], reference)


def test_sdk_pays(shared: Instance, sdk: Sdk, place: Place) -> None:
    base = place.resource_server
    incoming_access = {"type": "incoming-payment", "actions": ["create", "read", "list", "complete"]}
    granted = sdk.request_grant(place.auth_server, [incoming_access | {"identifier": place.payee}])
    incoming_token = granted["access_token"]["value"]
    asked = {"walletAddress": place.payee, "metadata": {"note": "Käse & Brot / 1"}}
    receiver = sdk.create(base, "incoming-payments", asked, incoming_token)
    assert receiver["metadata"] == asked["metadata"]

    granted = sdk.request_grant(place.auth_server, [{"type": "quote", "actions": ["create", "read"]}])
    quote_token = granted["access_token"]["value"]
    amount = {"value": "250", "assetCode": "USD", "assetScale": 2}
    body = {"walletAddress": place.payer, "receiver": receiver["id"], "method": "ilp", "debitAmount": amount}
    quote = sdk.create(base, "quotes", body, quote_token)
    assert sdk.read(quote["id"], quote_token) == quote

    outgoing_token = consented(shared, sdk, place, spending(place.payer))["access_token"]["value"]
    body = {"walletAddress": place.payer, "quoteId": quote["id"], "metadata": {}}
    payment = sdk.create(base, "outgoing-payments", body, outgoing_token)
    assert payment["grantSpentDebitAmount"] == amount
    read = sdk.read(payment["id"], outgoing_token)
    assert (read["sentAmount"], read["failed"]) == (amount, False)
    query = {"wallet-address": place.payer, "first": "10"}
    assert sdk.list_page(base, "outgoing-payments", query, outgoing_token)["result"] == [read]
    if not isinstance(sdk, DotNet):  # it has no such call
        spent = ok(sdk.send("GET", f"{base}/outgoing-payment-grant", None, outgoing_token))
        assert spent == {"spentDebitAmount": amount, "spentReceiveAmount": amount}

    assert sdk.read(receiver["id"], incoming_token)["receivedAmount"] == amount
    completed = sdk.complete(receiver["id"], incoming_token)
    assert (completed["completed"], completed["receivedAmount"]) == (True, amount)
    query = {"wallet-address": place.payee, "cursor": "ffffffff-ffff-ffff-ffff-ffffffffffff", "first": "1"}
    assert sdk.list_page(base, "incoming-payments", query, incoming_token)["result"] == [completed]


def test_sdk_rotates_and_revokes(shared: Instance, sdk: Sdk, place: Place) -> None:
    first = consented(shared, sdk, place, spending(place.payer))["access_token"]
    second = sdk.rotate(first)
    assert second["value"] != first["value"]
    assert second["manage"] != first["manage"]
    list_url = f"{place.resource_server}/outgoing-payments?{urlencode({'wallet-address': place.payer})}"
    assert sdk.send("GET", list_url, None, first["value"])[0] == 401
    assert ok(sdk.send("GET", list_url, None, second["value"]))["result"] == []
    third = sdk.rotate(second)
    sdk.revoke(third)
    status, body = sdk.send("GET", list_url, None, third["value"])
    assert (status, body["error"]["details"]["reason"]) == (401, "revoked_token")


def test_sdk_polls_and_cancels(shared: Instance, sdk: Sdk, place: Place) -> None:
    asked = sdk.request_grant(place.auth_server, spending(place.payer), {"start": ["redirect"]})
    waiting = sdk.continue_grant(asked["continue"])
    assert "access_token" not in waiting
    assert shared.approve(asked["interact"]["redirect"]) is None
    granted = sdk.continue_grant(waiting["continue"])
    token = granted["access_token"]["value"]
    query = {"wallet-address": place.payer}
    assert sdk.list_page(place.resource_server, "outgoing-payments", query, token)["result"] == []
    sdk.cancel_grant(granted["continue"])
    list_url = f"{place.resource_server}/outgoing-payments?{urlencode(query)}"
    status, body = sdk.send("GET", list_url, None, token)
    assert (status, body["error"]["details"]["reason"]) == (401, "revoked_token")


def test_sdk_is_refused_with_another_key(shared: Instance, sdk: Sdk, place: Place) -> None:
    access = [{"type": "incoming-payment", "actions": ["create"]}]
    token = sdk.request_grant(place.auth_server, access)["access_token"]["value"]
    sdk.private_key = generate_private_key()
    url, body = f"{place.resource_server}/incoming-payments", {"walletAddress": place.payee}
    status, refusal = sdk.send("POST", url, body, token)
    assert (status, refusal["error"]["details"]["reason"]) == (401, "signature_mismatch")


# Signatures over POST https://auth.example/continue/1 with the key of RFC 9421 appendix B.1.4, computed elsewhere.
VECTORS: dict[type[Sdk], str] = {
    Php: "DDigaEPJtVgJyWsxhmWQWovvHGGli79TMsjLxsfgW0pnBVonu3UkUeCgJ1C0/0fdYPzETKDsdBfryx94b7ViCQ==",
    Go: "I4kRMrsunuY7+rRW2IKVawyNFxYpAr/nrLYhSX6tRTbeDE6jso9WCn1SWw16JLH8ioV4vIvIxE7WEruaLjyeAA==",
    DotNet: "I4kRMrsunuY7+rRW2IKVawyNFxYpAr/nrLYhSX6tRTbeDE6jso9WCn1SWw16JLH8ioV4vIvIxE7WEruaLjyeAA==",
    Python: "PN/c05mAoti+rPlxciQUCE2Cp0xDnYpHpCkxrE9VZIcUEGX0Y9yuiNUHzT4950Pqgub3PNk0DxJ+JJgShVYRDw==",
    Rust: "s5JRf1c5CantbdOBBTmgZy1+zIfM0BOmJhpr/GZnUEnPvNAX0yCgpoz+PxM1Beg5uKqcWD9eK2g3M9spBmI7DA==",
}


@pytest.mark.parametrize("kind", SDKS)
def test_shape_is_that_of_the_sdk(kind: type[Sdk]) -> None:
    private_key = Ed25519PrivateKey.from_private_bytes(
        urlsafe_b64decode("n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU=")
    )
    sdk = kind("https://shop.example", private_key, "test-key-ed25519", lambda: 1_618_884_473)
    wire = sdk.prepare("POST", "https://auth.example/continue/1", b'{"interact_ref":"abc"}', "T")
    assert VECTORS[kind] in wire.headers["Signature"]
    assert sdk.encode({"interact_ref": "abc"}) == b'{"interact_ref":"abc"}'
