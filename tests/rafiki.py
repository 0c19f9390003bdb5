"""Another provider's server, which demands of its clients what a live Rafiki demands of them, and answers like one.

It signs nothing and moves no money. A test may have it answer anything else.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import quote

import httpx2
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from payres.core.protocol.clock import SECOND, Clock
from tests.helpers import Json, usd
from tests.http_server import reply, serving

Answer = tuple[int, Any]
WAIT = 5  # seconds before a grant may be continued
CREATED = "2026-11-23T14:02:00.000Z"
# Like those of a Rafiki with tenants: neither server is at the root.
CALLS = {
    "GET /w": "wallet",
    "POST /auth/tenant": "grant",
    "POST /auth/continue/1": "continue",
    "DELETE /auth/continue/1": "cancel",
    "POST /tenant/quotes": "quote",
    "POST /tenant/outgoing-payments": "create",
    "GET /tenant/outgoing-payments/1": "read",
    "GET /tenant/outgoing-payments": "list",
    "POST /auth/token/1": "rotate",
}
# Members of a body, those that it may lack after them.
BODIES = {
    "quoting": ({"access_token", "client"}, {"interact"}),
    "grant": ({"access_token", "client", "interact"}, set()),
    "continue": (set(), {"interact_ref"}),
    "quote": ({"walletAddress", "receiver", "method"}, {"receiveAmount", "debitAmount"}),
    "create": ({"walletAddress", "quoteId"}, {"metadata"}),
}
TOKENS = {"continue": "going-on", "cancel": "going-on", "quote": "quoting"} | dict.fromkeys(
    ("create", "read", "list"), "paying"
)


class Refused(Exception):
    """A demand that a request does not meet, with the answer to it."""

    def __init__(self, status: int, code: str, description: str) -> None:
        super().__init__(description)
        self.answer = status, {"error": {"code": code, "description": description}}


class Rafiki:
    """`answers` has a test's own by the name of the call; None in the place of one stands for the usual. `asked` has
    each call with its body, `refused` what a request lacked. The answers to calls in `lost` are not sent. It keeps no
    Idempotency-Keys, unless it `keeps_keys`, but pays a quote once, and continues a grant once."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.url = url
        self.clock = clock
        self.wait = 0
        self.client = ""
        self.answers: dict[str, Callable[[Json], Answer | None]] = {}
        self.asked: list[tuple[str, Json]] = []
        self.refused: list[str] = []
        self.lost: set[str] = set()
        self.keeps_keys = False
        self.is_expired = False  # the first token, which was rotated if another one is used
        self.payments: list[Json] = []
        self._made: dict[str, Json] = {}  # by Idempotency-Key
        self._is_issued, self._asked_for, self._cancelled = False, 0, set[str]()
        self._running = ExitStack()

    def start(self) -> None:
        """Listens, at the port where it did."""
        port = int(self.url.rpartition(":")[2] or "0")
        self.url = f"http://127.0.0.1:{self._running.enter_context(serving(self.answer, port=port))}"

    def stop(self) -> None:
        """Listens no more; also while it answers."""
        self._running.close()

    @property
    def wallet(self) -> str:
        """The wallet address that pays."""
        return f"{self.url}/w"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answers a request."""
        content = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        body = json.loads(content or b"{}")
        path = re.sub(r"(/continue/)\d+$", r"\g<1>1", handler.path.partition("?")[0])
        name = CALLS.get(f"{handler.command} {path}", "unknown")
        name = "quoting" if name == "grant" and '"quote"' in json.dumps(body.get("access_token")) else name
        self.asked.append((name, body))
        key = handler.headers.get("idempotency-key", "") if self.keeps_keys else ""
        try:
            if name != "wallet":
                self._check(name, handler, content, body)
            own = self.answers[name](body) if name in self.answers else None
            status, found = own or self._keyed(name, key) or self.usual(name, body)
            if (name, status) == ("cancel", 204):
                self._cancelled.add(handler.path)
            if key and status == 201:
                self._made[key] = found
        except Refused as refused:
            self.refused.append(f"{name}: {refused}")
            status, found = refused.answer
        if name in self.lost:
            return None
        if isinstance(found, dict) and "location" in found:
            return reply(handler, status, Location=found["location"])
        text = found if isinstance(found, bytes) else json.dumps(found).encode()
        kept = {"Idempotency-Key": key} if key else {}
        return reply(handler, status, text, **{"Content-Type": "application/json"}, **kept)

    def usual(self, name: str, body: Json) -> Answer:
        """What Rafiki answers."""
        if name in {"quoting", "grant", "continue", "cancel"}:
            return self._grant(name, body)
        match name:
            case "wallet":
                servers = {"authServer": f"{self.url}/auth/tenant", "resourceServer": f"{self.url}/tenant"}
                return 200, {"id": self.wallet, "publicName": "W", "assetCode": "USD", "assetScale": 2, **servers}
            case "quote":
                receive = body.get("receiveAmount") or body["debitAmount"]
                self.quoted = {"receiver": body["receiver"], "receiveAmount": receive, "debitAmount": receive}
                more = {"expiresAt": "2026-11-23T14:07:00.000Z", "createdAt": CREATED}
                return 201, {"id": f"{self.url}/tenant/quotes/1", "walletAddress": self.wallet, **self.quoted} | {
                    "method": "ilp",
                    **more,
                }
            case "create":
                if self.payments:
                    raise Refused(400, "400", "invalid quote")
                self.payments.append(self._payment())
                spent = {"grantSpentDebitAmount": usd(0), "grantSpentReceiveAmount": usd(0)}
                return 201, self._payment() | spent
            case "read":
                return 200, self._payment()
            case "rotate":
                renewed = {"value": "renewed", "manage": f"{self.url}/auth/token/1", "access": self.access}
                return 200, {"access_token": renewed}
            case "list":
                if "list" not in self.access[0]["actions"]:
                    raise Refused(403, "403", "Insufficient Grant")
                return 200, {"pagination": {"hasNextPage": False, "hasPreviousPage": False}, "result": self.payments}
        return 404, {}

    def _grant(self, name: str, body: Json) -> Answer:
        """What its authorization server answers."""
        token = {"manage": f"{self.url}/auth/token/1", "expires_in": 600}
        going_on: Json = {"access_token": {"value": "going-on"}, "uri": self.url + self._continuation}
        match name:
            case "quoting":
                access = body["access_token"]["access"]
                return 200, {"access_token": {"value": "quoting", "access": access, **token}, "continue": going_on}
            case "grant":
                self._asked_for += 1
                going_on["uri"] = self.url + self._continuation
                finish = body["interact"].get("finish", {})
                self.nonce, self.back, self.granted = finish.get("nonce"), finish.get("uri"), self.clock.now()
                self.access, self._is_issued = body["access_token"]["access"], False
                redirect = f"{self.url}/auth/interact/1/2?clientName=Shop&clientUri={quote(body['client'], safe='')}"
                going_on["wait"] = self.wait
                return 200, {"interact": {"redirect": redirect, "finish": "theirs"}, "continue": going_on}
            case "continue" if self._is_issued:
                raise Refused(401, "request_denied", "grant interaction not approved")
            case "continue":
                self._is_issued = True
                issued = {"value": "paying", "access": self.access, **token}
                return 200, {"access_token": issued, "continue": going_on}
        return 204, b""

    def with_members(self, name: str, **members: Any) -> Callable[[Json], Answer]:
        """The usual answer with other members; None leaves one out."""

        def answer(body: Json) -> Answer:
            status, found = self.usual(name, body)
            return status, {key: value for key, value in (found | members).items() if value is not None}

        return answer

    def approve(self, reference: str = "ref", *, endpoint: str = "", is_url_safe: bool = False) -> str:
        """Where the browser is sent back to. The hash is over the URL of the grant endpoint in this spelling; clients
        find it in base64 with padding, or as the standard has it."""
        text = "\n".join((self.nonce, "theirs", reference, endpoint or f"{self.url}/auth/tenant"))
        digest = hashlib.sha256(text.encode()).digest()
        shown = base64.urlsafe_b64encode(digest).rstrip(b"=") if is_url_safe else base64.b64encode(digest)
        return f"{self.back}?hash={quote(shown, safe='')}&interact_ref={reference}"

    def made(self, name: str) -> int:
        """How often a call was made."""
        return [one for one, _ in self.asked].count(name)

    @property
    def _continuation(self) -> str:
        """Where the last grant is continued."""
        return f"/auth/continue/{self._asked_for}"

    def _keyed(self, name: str, key: str) -> Answer | None:
        """What was answered under this key before."""
        return (201, self._made[key]) if name == "create" and key in self._made else None

    def _payment(self) -> Json:
        return {
            "id": f"{self.url}/tenant/outgoing-payments/1",
            "walletAddress": self.wallet,
            "quoteId": f"{self.url}/tenant/quotes/1",
            "failed": False,
            **self.quoted,
            "sentAmount": usd(0),
            "createdAt": CREATED,
        }

    def _check(self, name: str, handler: BaseHTTPRequestHandler, content: bytes, body: Json) -> None:
        """Raises Refused. The order is Rafiki's: schema, token, signature, then what the call is about."""
        headers = handler.headers
        if headers.get("accept") != "application/json":
            raise Refused(406, "406", "Received error validating OpenAPI request: Must accept application/json")
        if content and headers.get("content-type") != "application/json":
            raise Refused(415, "415", "Received error validating OpenAPI request: Unsupported Content-Type")
        needed, also = BODIES.get(name, (set[str](), set[str]()))
        if not needed <= body.keys() <= needed | also:
            raise Refused(400, "400", f"Received error validating OpenAPI request: body has {sorted(body)}")
        token, is_ended = self._token_of(name), self._continuation in self._cancelled
        if token and (headers.get("authorization") != f"GNAP {token}" or (is_ended and token != "going-on")):
            raise Refused(403, "403", "Inactive Token")
        self._check_signature(handler, content, body.get("client"))
        if name in {"quoting", "grant"}:
            self._check_grant(name, body)
        elif name == "continue" and self.clock.now() < self.granted + self.wait * SECOND:
            raise Refused(400, "too_fast", 'continued grant faster than "wait" period')
        elif name == "continue" and ("interact_ref" in body) != (self.back is not None):
            raise Refused(
                401, "request_denied", "grant cannot be polled" if self.back else "grant interaction not approved"
            )
        elif name == "quote" and (body["method"] != "ilp" or "/incoming-payments/" not in body["receiver"]):
            raise Refused(400, "400", "invalid receiver")
        elif name == "create" and body["quoteId"] != f"{self.url}/tenant/quotes/1":
            raise Refused(404, "404", "unknown quote")

    def _token_of(self, name: str) -> str | None:
        token = TOKENS.get(name)
        return "renewed" if token == "paying" and self.is_expired else token

    def _check_grant(self, name: str, body: Json) -> None:
        """Rafiki: grants of one item, the least that is asked for. An outgoing payment needs interaction, an
        identifier, one amount at most, and a client whose wallet address has a name."""
        [item] = body["access_token"]["access"]
        if name == "quoting":
            if item not in (
                {"type": "quote", "actions": ["create"]} | more for more in ({}, {"identifier": self.wallet})
            ):
                raise Refused(400, "invalid_request", f"access item {item}")
            return
        limits = item["limits"]
        if item.keys() != {"type", "actions", "identifier", "limits"} or item["type"] != "outgoing-payment":
            raise Refused(400, "invalid_request", "access identifier required")
        if not {"debitAmount"} <= limits.keys() or any(limits[name] != self.quoted[name] for name in limits):
            raise Refused(400, "invalid_request", "only one access amount allowed")
        finish = body["interact"].get("finish", {})
        if body["interact"].get("start") != ["redirect"] or (finish and finish.keys() != {"method", "uri", "nonce"}):
            raise Refused(400, "invalid_request", "missing required request field 'interact'")
        if not _fetch(body["client"]).get("publicName"):
            raise Refused(400, "invalid_client", "missing required request field 'client'")

    def _check_signature(self, handler: BaseHTTPRequestHandler, content: bytes, client: str | None) -> None:
        """As @interledger/http-signature-utils verifies: one signature of the label sig1, and the components that the
        JavaScript client covers. Keys are fetched for each request."""
        headers = handler.headers
        self.client = client or self.client
        parameters = headers.get("signature-input", "").removeprefix("sig1=")
        found = re.fullmatch(r'\(([^)]*)\);keyid="([^"]+)";created=[0-9]+', parameters)
        if found is None:
            raise Refused(401, "invalid_client", "invalid signature headers")
        components = found[1].replace('"', "").split(" ")
        needed = ["@method", "@target-uri", *(["authorization"] if "authorization" in headers else [])]
        needed += ["content-digest", "content-length", "content-type"] if content else []
        digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
        if content and headers.get("content-digest") != f"sha-512=:{digest}:":
            raise Refused(401, "invalid_client", "invalid signature headers")
        if [one for one in components if one != "idempotency-key"] != needed:
            raise Refused(401, "invalid_client", f"invalid signature input {components}")
        values = {"@method": handler.command, "@target-uri": self.url + handler.path}
        lines = [f'"{one}": {values[one] if one in values else headers[one]}' for one in components]
        base = "\n".join([*lines, f'"@signature-params": {parameters}']).encode()
        keys = {key["kid"]: key["x"] for key in _fetch(f"{self.client}/jwks.json")["keys"]}
        if found[2] not in keys:
            raise Refused(400, "invalid_client", "could not determine client")
        try:
            key = Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(keys[found[2]] + "="))
            key.verify(base64.b64decode(headers["signature"].removeprefix("sig1=").strip(":")), base)
        except InvalidSignature as error:
            raise Refused(401, "invalid_client", "invalid signature") from error


@contextmanager
def run_rafiki(clock: Clock) -> Iterator[Rafiki]:
    """One at a free port until the block ends, with the clock of its clients."""
    found = Rafiki("", clock)
    found.start()
    try:
        yield found
    finally:
        found.stop()


def _fetch(url: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = httpx2.get(url, headers={"Accept": "application/json"}).json()
    return found
