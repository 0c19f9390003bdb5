"""A client that signs its requests, for tests of payres itself: any request by hand, or the flow in a few calls."""

import json
import ssl
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from payres.core.protocol.clock import SECOND, Clock
from payres.core.signatures.jwk import JWK, jwk_from_public_bytes
from payres.core.signatures.sign import Message, sign

FINISH_URI = "http://127.0.0.1/finished"
Approve = Callable[[str], str | None]
Json = dict[str, Any]


class Client:
    """Signs as its wallet address; `approve` stands in for the wallet owner's browser."""

    def __init__(
        self,
        wallet_address: str,
        private_key: Ed25519PrivateKey,
        jwk: JWK,
        base_url: str,
        clock: Clock,
        approve: Approve,
    ) -> None:
        self.wallet_address = wallet_address
        self.private_key = private_key
        self.jwk = jwk
        self.base_url = base_url
        self._clock = clock
        self._approve = approve
        self._tokens: dict[tuple[str, str], str] = {}
        # Loopback speaks plain HTTP; loading the machine's certificates would take longer than the whole flow.
        self._http = httpx2.Client(timeout=60, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    @classmethod
    def of(cls, app: Mapping[str, str], base_url: str, clock: Clock, approve: Approve) -> "Client":
        """The client of an app, as `Instance.new_app` makes it."""
        key = load_pem_private_key(app["private_key"].encode(), None)
        assert isinstance(key, Ed25519PrivateKey)
        jwk = jwk_from_public_bytes(app["kid"], key.public_key().public_bytes_raw())
        return cls(app["wallet_address"], key, jwk, base_url, clock, approve)

    def request(
        self,
        method: str,
        url: str,
        body: Any = None,
        token: str | None = None,
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
    ) -> httpx2.Response:
        """The answer to a signed request; `url` may be a path, `body` is sent as JSON and `raw` as it is."""
        url = self.base_url + url if url.startswith("/") else url
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        request = self._http.build_request(method, url, content=content or None)
        sent = {"content-type": "application/json"} | ({"authorization": f"GNAP {token}"} if token else {})
        sent |= {name.lower(): value for name, value in (headers or {}).items()}
        lines = [(name.encode(), value.encode()) for name, value in sent.items()]
        target = request.url.raw_path.decode()
        message = Message(method, f"{request.url.scheme}://{request.url.netloc.decode()}{target}", lines, content)
        signed = sign(message, self.private_key.sign, self.jwk.kid, self._clock.now() // SECOND)
        request.headers.update(sent | signed)
        return self._http.send(request)

    def get(self, url: str, token: str | None = None) -> httpx2.Response:
        return self.request("GET", url, token=token)

    def post(self, url: str, body: Any = None, token: str | None = None) -> httpx2.Response:
        return self.request("POST", url, body, token)

    def delete(self, url: str, token: str | None = None) -> httpx2.Response:
        return self.request("DELETE", url, token=token)

    def request_grant(self, *access: Json, **members: Any) -> httpx2.Response:
        """A grant request for these access items, with consent asked for by redirect; `members` replace its own.

        A client without a wallet address names its key.
        """
        body = {
            "client": self.wallet_address or {"jwk": msgspec.to_builtins(self.jwk)},
            "access_token": {"access": list(access)},
            "interact": {
                "start": ["redirect"],
                "finish": {"method": "redirect", "uri": FINISH_URI, "nonce": "client-nonce"},
            },
        }
        return self.post("/", {name: value for name, value in (body | members).items() if value is not None})

    def grant(self, *access: Json, **members: Any) -> str:
        """An access token for these access items, consented to if need be."""
        return str(self.obtain_grant(*access, **members)["access_token"]["value"])

    def obtain_grant(self, *access: Json, **members: Any) -> Json:
        """The grant response that carries the access token, after consent if need be."""
        answer = _json(self.request_grant(*access, **members))
        if "interact" not in answer:
            return answer
        finished = self._approve(answer["interact"]["redirect"])
        reference = parse_qs(urlsplit(finished).query)["interact_ref"][0] if finished else None
        follow_up = answer["continue"]
        body = {"interact_ref": reference} if reference else None
        return _json(self.post(follow_up["uri"], body, follow_up["access_token"]["value"]))

    def create_incoming_payment(self, wallet_address: str, amount: Json | None = None, **members: Any) -> Json:
        """An incoming payment into a wallet address, with a grant that needs no consent."""
        body = {"walletAddress": wallet_address} | ({"incomingAmount": amount} if amount else {}) | members
        return self._create("incoming-payment", "/incoming-payments", body)

    def create_quote(self, wallet_address: str, receiver: str, **members: Any) -> Json:
        """A quote for paying `receiver` from a wallet address; debitAmount or receiveAmount may be given."""
        body = {"walletAddress": wallet_address, "receiver": receiver, "method": "ilp"} | members
        return self._create("quote", "/quotes", body)

    def create_outgoing_payment(self, wallet_address: str, quote_id: str, limits: Json | None = None) -> Json:
        """An outgoing payment for a quote, with a grant that the wallet's owner consents to."""
        item = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": wallet_address}
        token = self.grant(item | ({"limits": limits} if limits else {}))
        return _json(self.post("/outgoing-payments", {"walletAddress": wallet_address, "quoteId": quote_id}, token))

    def pay(self, wallet_address: str, receiver: str, **members: Any) -> Json:
        """Quotes and pays `receiver` from a wallet address; the outgoing payment as created."""
        return self.create_outgoing_payment(
            wallet_address, self.create_quote(wallet_address, receiver, **members)["id"]
        )

    def _create(self, kind: str, path: str, body: Json) -> Json:
        """What was created with the grant of the last creation in the wallet address, or with a new one if it has
        ended."""
        named = kind, body["walletAddress"]
        if named in self._tokens:
            answer = self.post(path, body, self._tokens[named])
            if answer.status_code != 401:
                return _json(answer)
        self._tokens[named] = self.grant({"type": kind, "actions": ["create"], "identifier": named[1]})
        return _json(self.post(path, body, self._tokens[named]))

    def close(self) -> None:
        self._http.close()


def _json(response: httpx2.Response) -> Json:
    if not response.is_success:
        raise AssertionError(
            f"{response.request.method} {response.request.url}: {response.status_code} {response.text}"
        )
    answer: Json = response.json()
    return answer
