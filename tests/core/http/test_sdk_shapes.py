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

from payres.core.signatures.jwk import JWK, generate_private_key, jwk_from_public_bytes
from tests.helpers import TIMEOUT, Json, usd
from tests.http_server import reply, serving
from tests.instance import Instance

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
    """What the SDKs have in common. `client` is the client's wallet address, `base` the URL of the server."""

    polls_with_an_object = False

    def __init__(
        self, base: str, client: str, private_key: Ed25519PrivateKey, kid: str, now: Callable[[], int]
    ) -> None:
        self.base = base
        self.client = client
        self.private_key = private_key
        self.kid = kid
        self.now = now

    # Operations, with the address and body that each SDK gives them.

    def request_grant(self, *access: Json, interact: Json | None = None) -> Json:
        body: Json = {"client": self.client, "access_token": {"access": access}}
        return ok(self.send("POST", f"{self.base}/", body | ({"interact": interact} if interact else {})))

    def continue_grant(self, follow_up: Json, reference: str | None = None) -> Json:
        body = {"interact_ref": reference} if reference else {} if self.polls_with_an_object else None
        return ok(self.send("POST", follow_up["uri"], body, follow_up["access_token"]["value"]))

    def cancel_grant(self, follow_up: Json) -> None:
        ok(self.send("DELETE", follow_up["uri"], None, follow_up["access_token"]["value"]), 204)

    def rotate(self, token: Json) -> Json:
        rotated: Json = ok(self.send("POST", token["manage"], None, token["value"]))["access_token"]
        return rotated

    def revoke(self, token: Json) -> None:
        ok(self.send("DELETE", token["manage"], None, token["value"]), 204)

    def create(self, collection: str, body: Json, token: str) -> Json:
        return ok(self.send("POST", f"{self.base}/{collection}", body, token), 201)

    def read(self, url: str, token: str) -> Json:
        return ok(self.send("GET", url, None, token))

    def complete(self, url: str, token: str) -> Json:
        return ok(self.send("POST", f"{url}/complete", None, token))

    def page(self, collection: str, token: str, **query: str) -> tuple[int, Json]:
        """The answer to asking for a list; the names of the query have `_` for `-`."""
        named = {name.replace("_", "-"): value for name, value in query.items()}
        return self.send("GET", f"{self.base}/{collection}?{urlencode(named)}", None, token)

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

    polls_with_an_object = True

    def request_grant(self, *access: Json, interact: Json | None = None) -> Json:
        body: Json = {"access_token": {"access": access}, "client": {"walletAddress": self.client}}
        return ok(self.send("POST", f"{self.base}/", body | ({"interact": interact} if interact else {})))

    def page(self, collection: str, token: str, **query: str) -> tuple[int, Json]:
        return super().page(collection, token, **dict(sorted(query.items())))

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

    polls_with_an_object = True

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
    known = shared.client
    address, key, jwk = remote if kind is Python else (known.wallet_address, known.private_key, known.jwk)
    return kind(shared.base_url, address, key, jwk.kid, lambda: shared.clock.now() // 1_000_000)


@pytest.fixture
def payer(shared: Instance, request: pytest.FixtureRequest) -> str:
    """The address of a new wallet with 10.00 USD."""
    return shared.create_wallet(re.sub(r"\W|_", "-", request.node.name), deposit="10.00")


def spending(wallet_address: str) -> Json:
    item = {"type": "outgoing-payment", "actions": ["create", "read", "list"], "identifier": wallet_address}
    return item | {"limits": {"debitAmount": usd(1000)}}


def consented(shared: Instance, sdk: Sdk, access: Json) -> Json:
    """The answer to the continuation of a grant that the owner approved."""
    asked = sdk.request_grant(access, interact={"start": ["redirect"], "finish": FINISH})
    finished = shared.approve(asked["interact"]["redirect"])
    assert finished is not None
    return sdk.continue_grant(asked["continue"], parse_qs(urlsplit(finished).query)["interact_ref"][0])


def test_sdk_pays(shared: Instance, sdk: Sdk, payer: str) -> None:
    payee = shared.create_wallet(f"{payer.rpartition('/')[2]}-payee")
    actions = ["create", "read", "list", "complete"]
    granted = sdk.request_grant({"type": "incoming-payment", "actions": actions, "identifier": payee})
    incoming_token = granted["access_token"]["value"]
    asked = {"walletAddress": payee, "metadata": {"note": "Käse & Brot / 1"}}
    receiver = sdk.create("incoming-payments", asked, incoming_token)
    assert receiver["metadata"] == asked["metadata"]

    granted = sdk.request_grant({"type": "quote", "actions": ["create", "read"]})
    quote_token = granted["access_token"]["value"]
    body = {"walletAddress": payer, "receiver": receiver["id"], "method": "ilp", "debitAmount": usd(250)}
    quote = sdk.create("quotes", body, quote_token)
    assert sdk.read(quote["id"], quote_token) == quote

    outgoing_token = consented(shared, sdk, spending(payer))["access_token"]["value"]
    body = {"walletAddress": payer, "quoteId": quote["id"], "metadata": {}}
    payment = sdk.create("outgoing-payments", body, outgoing_token)
    assert payment["grantSpentDebitAmount"] == usd(250)
    read = sdk.read(payment["id"], outgoing_token)
    assert (read["sentAmount"], read["failed"]) == (usd(250), False)
    listed = ok(sdk.page("outgoing-payments", outgoing_token, wallet_address=payer, first="10"))
    assert listed["result"] == [read]
    if not isinstance(sdk, DotNet):  # it has no such call
        spent = ok(sdk.send("GET", f"{sdk.base}/outgoing-payment-grant", None, outgoing_token))
        assert spent == {"spentDebitAmount": usd(250), "spentReceiveAmount": usd(250)}

    assert sdk.read(receiver["id"], incoming_token)["receivedAmount"] == usd(250)
    completed = sdk.complete(receiver["id"], incoming_token)
    assert (completed["completed"], completed["receivedAmount"]) == (True, usd(250))
    query = {"wallet_address": payee, "cursor": "ffffffff-ffff-ffff-ffff-ffffffffffff", "first": "1"}
    assert ok(sdk.page("incoming-payments", incoming_token, **query))["result"] == [completed]


def test_sdk_rotates_and_revokes(shared: Instance, sdk: Sdk, payer: str) -> None:
    first = consented(shared, sdk, spending(payer))["access_token"]
    second = sdk.rotate(first)
    assert second["value"] != first["value"]
    assert second["manage"] != first["manage"]
    assert sdk.page("outgoing-payments", first["value"], wallet_address=payer)[0] == 401
    assert ok(sdk.page("outgoing-payments", second["value"], wallet_address=payer))["result"] == []
    third = sdk.rotate(second)
    sdk.revoke(third)
    status, body = sdk.page("outgoing-payments", third["value"], wallet_address=payer)
    assert (status, body["error"]["details"]["reason"]) == (401, "revoked_token")


def test_sdk_polls_and_cancels(shared: Instance, sdk: Sdk, payer: str) -> None:
    asked = sdk.request_grant(spending(payer), interact={"start": ["redirect"]})
    waiting = sdk.continue_grant(asked["continue"])
    assert "access_token" not in waiting
    assert shared.approve(asked["interact"]["redirect"]) is None
    granted = sdk.continue_grant(waiting["continue"])
    token = granted["access_token"]["value"]
    assert ok(sdk.page("outgoing-payments", token, wallet_address=payer))["result"] == []
    sdk.cancel_grant(granted["continue"])
    status, body = sdk.page("outgoing-payments", token, wallet_address=payer)
    assert (status, body["error"]["details"]["reason"]) == (401, "revoked_token")


def test_sdk_is_refused_with_another_key(sdk: Sdk, payer: str) -> None:
    granted = sdk.request_grant({"type": "incoming-payment", "actions": ["create"]})
    sdk.private_key = generate_private_key()
    url, token = f"{sdk.base}/incoming-payments", granted["access_token"]["value"]
    status, refusal = sdk.send("POST", url, {"walletAddress": payer}, token)
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
    sdk = kind("https://auth.example", "https://shop.example", private_key, "test-key-ed25519", lambda: 1_618_884_473)
    wire = sdk.prepare("POST", "https://auth.example/continue/1", b'{"interact_ref":"abc"}', "T")
    assert VECTORS[kind] in wire.headers["Signature"]
    assert sdk.encode({"interact_ref": "abc"}) == b'{"interact_ref":"abc"}'
