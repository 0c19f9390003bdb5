"""What schemathesis lacks to be taken seriously by a server: signatures, tokens, and ids of things that exist."""

import random
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests
from schemathesis import AuthContext, Case

from payres.core.protocol.urls import is_http_url
from payres.core.signatures.sign import Message, sign
from tests.helpers import Json, last_segment, usd
from tests.instance import Instance
from tests.openapi.conformance import Answer, UndocumentedAnswerError, check_answer

# Stands for a token that permits the operation until it is sent.
PERMITTED = "GNAP permitted"
REAL = 0.8  # how often something generated gives way to something that exists
SIGNATURE_HEADERS = ("Signature-Input", "Signature")

GeneratedCase = Case[Any]


class Traffic:
    """Makes generated cases mean something to one instance, and hears what it answers."""

    def __init__(self, payres: Instance, seed: int) -> None:
        self.payres = payres
        self.complaints: list[str] = []
        self.requests = 0
        self._random = random.Random(seed)
        self._wallets = [payres.wallet("alice"), payres.wallet("bob")]
        self._tokens = self._consented_tokens()
        alice, bob = self._wallets
        bills: list[tuple[str, Json]] = [
            (bob, {}),
            (bob, {"amount": usd(500)}),
            (alice, {"metadata": {"n": 1}}),
            (bob, {}),
        ]
        self._receivers: list[str] = [
            payres.client.create_incoming_payment(wallet, **more)["id"] for wallet, more in bills
        ]
        payres.client.post(f"{self._receivers[-1]}/complete", token=self._tokens["incoming-payment"])
        self._payments = [payres.client.pay(alice, self._receivers[0], debitAmount=usd(1))["id"]]
        self._quotes = [self._quote()]

    def prepare(self, case: GeneratedCase) -> None:
        """Puts what exists in place of some of what was generated, where that could exist."""
        operation = case.operation.definition.raw.get("operationId", "")
        permitted = case.headers.get("Authorization") == PERMITTED
        if "id" in case.path_parameters and self._is_real():
            identifier, token, reference = self._resource(case.path)
            case.path_parameters["id"] = identifier
            if permitted and token:
                case.headers["Authorization"] = f"GNAP {token}"
            if reference and isinstance(case.body, dict) and isinstance(case.body.get("interact_ref"), str):
                case.body["interact_ref"] = reference
        if case.headers.get("Authorization") == PERMITTED:
            case.headers["Authorization"] = f"GNAP {self._token_for(case.path)}"
        if isinstance(case.query.get("wallet-address"), str) and self._is_real():
            case.query["wallet-address"] = self._wallets[0]
        if isinstance(case.body, dict):
            self._name_things(case.body, operation)

    def send(
        self, send: Callable[..., requests.Response], session: Any, request: requests.PreparedRequest, **options: Any
    ) -> requests.Response:
        """Signs a request that carries signature headers or need not, sends it, and checks the answer."""
        self.requests += 1
        self._sign(request)
        response = send(session, request, **options)
        path = urlsplit(request.url or "").path
        headers = {name.lower(): value for name, value in response.headers.items()}
        try:
            check_answer(Answer(request.method or "", path, response.status_code, headers, response.content))
        except UndocumentedAnswerError as error:
            self.complaints.append(str(error))
        return response

    def _sign(self, request: requests.PreparedRequest) -> None:
        """Replaces the signature headers that a case has, so that one which leaves them out stays without.

        The authorization server's document does not name them, so there every request gets them.
        """
        path = urlsplit(request.url or "").path.rstrip("/") or "/"
        wanted = [name for name in SIGNATURE_HEADERS if name in request.headers]
        if path == "/" or path.startswith(("/continue/", "/token/")):
            wanted = [*SIGNATURE_HEADERS]
        body = _bytes(request.body or b"")
        lines = [(_bytes(name).lower(), _bytes(value)) for name, value in request.headers.items()]
        lines = [(name, value) for name, value in lines if name not in {b"signature", b"signature-input"}]
        message = Message(request.method or "", request.url or "", lines, body)
        try:
            created = self.payres.clock.now() // 1_000_000
            signed = sign(message, self.payres.client.private_key.sign, self.payres.client.jwk.kid, created)
        except ValueError:
            return  # a header that cannot be signed; the server shall say what it thinks of it
        extra = {name: value for name, value in signed.items() if name not in SIGNATURE_HEADERS or name in wanted}
        request.headers.update(extra)

    def _is_real(self) -> bool:
        return self._random.random() < REAL

    def _resource(self, path: str) -> tuple[str, str | None, str | None]:
        """The id of something that the path can be about, a token fit for it alone, and an interact_ref."""
        if path.startswith("/continue/"):
            return self._continuation()
        if path.startswith("/token/"):
            given = self.payres.client.obtain_grant({"type": "quote", "actions": ["read"]})["access_token"]
            return last_segment(given["manage"]), given["value"], None
        urls = {"incoming": self._receivers, "outgoing": self._payments, "quotes": self._quotes}
        known = next(urls[kind] for kind in urls if path.startswith(f"/{kind}"))
        if path.endswith("/complete") and self._is_real():
            known = [self.payres.client.create_incoming_payment(self._wallets[0])["id"]]
        return last_segment(self._random.choice(known)), None, None

    def _continuation(self) -> tuple[str, str | None, str | None]:
        """A grant in any of its states: undecided, approved or denied."""
        item = {"type": "outgoing-payment", "actions": ["create"], "identifier": self._wallets[0]}
        asked = self.payres.client.request_grant(item).json()
        ways: list[Callable[[str], str | None]] = [self.payres.approve, self.payres.approve, self.payres.deny, _wait]
        finished = self._random.choice(ways)(asked["interact"]["redirect"]) or ""
        reference = parse_qs(urlsplit(finished).query).get("interact_ref", [None])[0]
        follow_up = asked["continue"]
        return last_segment(follow_up["uri"]), follow_up["access_token"]["value"], reference

    def _token_for(self, path: str) -> str:
        kinds = {"/incoming": "incoming-payment", "/quotes": "quote"}
        kind = next((kinds[start] for start in kinds if path.startswith(start)), "outgoing-payment")
        return self._tokens[kind]

    def _name_things(self, value: Any, operation: str) -> None:
        """Walks through a body and names wallets, payments, quotes and the client where it has URLs and assets."""
        if isinstance(value, list):
            for member in value:
                self._name_things(member, operation)
        if not isinstance(value, dict):
            return
        for name, member in value.items():
            # A client is always our own: the keys of another would be fetched from wherever the URL leads.
            own = operation == "post-request" and name in {"client", "walletAddress"}
            if isinstance(member, str) and is_http_url(member) and (own or self._is_real()):
                value[name] = self._thing(name, operation) or member
            self._name_things(member, operation)
        if {"value", "assetCode", "assetScale"} <= value.keys() and self._is_real():
            self._name_asset(value)

    def _thing(self, name: str, operation: str) -> str | None:
        match name:
            case "client" | "walletAddress" if operation == "post-request":
                return self.payres.client.wallet_address
            case "walletAddress" | "identifier" | "id":
                return self._random.choice(self._wallets)
            case "receiver" | "incomingPayment":
                return self._random.choice(self._receivers)
            case "quoteId":
                return self._quote() if self._is_real() else self._random.choice(self._quotes)
        return None

    def _name_asset(self, amount: Json) -> None:
        if isinstance(amount["assetCode"], str) and isinstance(amount["assetScale"], int):
            amount |= {"assetCode": "USD", "assetScale": 2}
        if isinstance(amount["value"], str) and amount["value"].isdigit() and self._is_real():
            amount["value"] = str(self._random.randint(1, 500))

    def _consented_tokens(self) -> dict[str, str]:
        """A token for each type of access that permits all its actions."""
        alice = {"identifier": self._wallets[0]}
        incoming = {"type": "incoming-payment", "actions": ["create", "complete", "read-all"]}
        lists = {"type": "incoming-payment", "actions": ["list-all"], **alice}
        outgoing = {"type": "outgoing-payment", "actions": ["create", "read-all", "list-all"], **alice}
        return {
            "incoming-payment": self.payres.client.grant(incoming, lists),
            "quote": self.payres.client.grant({"type": "quote", "actions": ["create", "read-all"]}),
            "outgoing-payment": self.payres.client.grant(outgoing),
        }

    def _quote(self) -> str:
        quote = self.payres.client.create_quote(self._wallets[0], self._receivers[0], debitAmount=usd(7))
        return str(quote["id"])


class Token:
    """Gives every case the token that its operation needs; which one that is turns out when it is sent."""

    def get(self, _: GeneratedCase, __: AuthContext) -> str:
        return PERMITTED

    def set(self, case: GeneratedCase, data: str, _: AuthContext) -> None:
        case.headers["Authorization"] = data


def _wait(_: str) -> None:
    """Decides nothing."""


def _bytes(text: Any) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)
