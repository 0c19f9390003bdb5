"""What the rows of the specification's table do to a running server: each call is a request, or leads up to one."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx2

from payres.core.protocol.clock import MINUTE, SECOND, format_time
from payres.operator import assets
from tests.helpers import Json, usd
from tests.instance import Instance
from tests.signing_client import Client

MAX_UINT64 = 2**64 - 1
MAX_LEDGER = 2**63 - 1
NOBODY = "00000000-0000-7000-8000-000000000000"
RACERS = 8


class Driver:
    """A server with a payer who has plenty of USD and a taker; `client` makes the requests, `other` is another client.

    `patient` is a second server. A client must wait there before it continues.
    """

    def __init__(self, instance: Instance, patient: Instance, anonymous: httpx2.Client) -> None:
        self.instance = instance
        self.patient = patient
        self.anonymous = anonymous
        self.client = instance.client
        self.other = instance.new_client("other-shop", name="Other Shop")
        self.payer = instance.create_wallet("spec-payer", name="Payer", deposit="90000000.00")
        self.taker = instance.create_wallet("spec-taker", name="Taker")
        self._numbers = count()
        self._kept: dict[tuple[object, ...], tuple[str, int]] = {}

    # Wallets, time and access

    def fresh(self, asset: str = "USD", scale: int = 2, deposit: str | None = None) -> str:
        """The address of a new wallet."""
        return self.instance.create_wallet(f"spec-{next(self._numbers)}", asset, scale, deposit=deposit)

    def path(self, wallet_address: str) -> str:
        return wallet_address.rpartition("/")[2]

    def code(self) -> str:
        """An asset code that nobody uses."""
        return f"SPEC{next(self._numbers)}"

    def market(self, rate: str = "0.5", fee: str = "0", basis_points: int = 0, scales: tuple[int, int] = (2, 2)) -> str:
        """The address of a wallet with 1000.00 in a currency of its own, which buys `rate` units of another, in which
        a wallet of that address with `-to` after it is kept."""
        source, target = self.code(), self.code()
        sender = self.fresh(source, scales[0], "1000")
        self.instance.create_wallet(f"{self.path(sender)}-to", target, scales[1])
        self.instance.write(lambda tx: assets.set_rate(tx, source, target, rate))
        self.instance.write(lambda tx: assets.set_fee(tx, source, scales[0], fee, basis_points))
        self.instance.write(lambda tx: assets.deposit_liquidity(tx, target, scales[1], "1000"))
        return sender

    def asset_of(self, wallet_address: str) -> tuple[str, int]:
        body = self.anonymous.get(wallet_address).json()
        return body["assetCode"], body["assetScale"]

    def later(self, seconds: float) -> str:
        """The time in so many seconds, as the wire shows it."""
        return format_time(self.instance.clock.now() + round(seconds * SECOND))

    def token(self, kind: str, *actions: str, wallet: str | None = None, by: Client | None = None, **more: Any) -> str:
        """An access token for one type of access, at every wallet address unless one is given."""
        identifier = {"identifier": wallet} if wallet else {}
        return (by or self.client).grant({"type": kind, "actions": list(actions), **identifier, **more})

    def kept_token(self, kind: str, *actions: str, wallet: str | None = None, by: Client | None = None) -> str:
        """Such a token for the rows that only use it: to ask for a new one each time would take most of their time."""
        key, now = (kind, actions, wallet, by), self.instance.clock.now()
        token, until = self._kept.get(key, ("", 0))
        if until <= now:
            token = self.token(kind, *actions, wallet=wallet, by=by)
            self._kept[key] = token, now + MINUTE
        return token

    # Incoming payments

    def create_incoming(self, wallet: str | None = None, **members: Any) -> httpx2.Response:
        """POST /incoming-payments into the taker's wallet or another."""
        body = {"walletAddress": wallet or self.taker} | members
        return self.client.post("/incoming-payments", body, self.kept_token("incoming-payment", "create"))

    def raw_incoming(self, raw: bytes, **headers: str) -> httpx2.Response:
        """POST /incoming-payments with a body as written, in which {taker} is the taker's wallet address."""
        token, raw = self.kept_token("incoming-payment", "create"), raw.replace(b"{taker}", self.taker.encode())
        return self.client.request("POST", "/incoming-payments", raw=raw, token=token, headers=headers)

    def incoming(self, amount: Json | None = None, wallet: str | None = None, **members: Any) -> str:
        """The URL of a new incoming payment."""
        answer = self.create_incoming(wallet, **({"incomingAmount": amount} if amount else {}), **members)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def expired(self) -> str:
        """The URL of an incoming payment that has expired."""
        url = self.incoming(usd(500), expiresAt=self.later(30))
        self.instance.clock.advance(31)
        return url

    def completed(self) -> str:
        """The URL of an incoming payment that was completed by call."""
        url = self.incoming(usd(500))
        assert self.complete(url).status_code == 200
        return url

    def complete(self, url: str, by: Client | None = None) -> httpx2.Response:
        return (by or self.client).post(f"{url}/complete", None, self.kept_token("incoming-payment", "complete", by=by))

    # Quotes

    def create_quote(
        self, receiver: str, wallet: str | None = None, by: Client | None = None, **members: Any
    ) -> httpx2.Response:
        """POST /quotes for paying from the payer's wallet or another. A member that is None is left out."""
        body = {"walletAddress": wallet or self.payer, "receiver": receiver, "method": "ilp"} | members
        body = {name: value for name, value in body.items() if value is not None}
        return (by or self.client).post("/quotes", body, self.kept_token("quote", "create", by=by))

    def quote(self, receiver: str, wallet: str | None = None, by: Client | None = None, **members: Any) -> str:
        """The URL of a new quote."""
        answer = self.create_quote(receiver, wallet, by, **members)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    # Outgoing payments

    def create_outgoing(self, wallet: str | None = None, **members: Any) -> httpx2.Response:
        """POST /outgoing-payments from the payer's wallet or another."""
        sender = wallet or self.payer
        token = self.kept_token("outgoing-payment", "create", wallet=sender)
        return self.client.post("/outgoing-payments", {"walletAddress": sender} | members, token)

    def use(self, quote_url: str, wallet: str | None = None) -> httpx2.Response:
        """POST /outgoing-payments from a quote."""
        return self.create_outgoing(wallet, quoteId=quote_url)

    def send(self, receiver: str, amount: Json, wallet: str | None = None) -> httpx2.Response:
        """POST /outgoing-payments directly from an incoming payment."""
        return self.create_outgoing(wallet, incomingPayment=receiver, debitAmount=amount)

    def paid(self, receiver: str, amount: Json, wallet: str | None = None) -> httpx2.Response:
        """The incoming payment as read after a payment into it."""
        assert self.send(receiver, amount, wallet).status_code == 201
        return self.read(receiver)

    def at_once(self, send: Callable[[int], httpx2.Response]) -> list[httpx2.Response]:
        """The answers to requests that are sent at the same moment, by number."""
        with ThreadPoolExecutor(RACERS) as threads:
            return list(threads.map(send, range(RACERS)))

    # Reading

    def read(self, url: str, by: Client | None = None) -> httpx2.Response:
        """GET what is at a URL or a path, as one who may read what it has created."""
        kind = url.split("/")[-2].removesuffix("s")
        wallet = self.payer if kind == "outgoing-payment" else None
        return (by or self.client).get(url, self.kept_token(kind, "read", wallet=wallet, by=by))

    def as_read(self, created: httpx2.Response) -> httpx2.Response:
        """An outgoing payment as read after it was made, which is when its money has arrived."""
        assert created.status_code == 201, created.text
        payment = created.json()
        token = self.kept_token("outgoing-payment", "read", wallet=payment["walletAddress"])
        return self.client.get(payment["id"], token)

    def list_of(self, collection: str, wallet: str, query: str = "") -> httpx2.Response:
        """GET a list of a wallet address; `query` is what comes after it, such as `first=2`."""
        token = self.kept_token(collection.removesuffix("s"), "list", wallet=wallet)
        return self.client.get(f"/{collection}?wallet-address={quote(wallet, '')}&{query}".rstrip("&"), token)

    # Grants

    def ask(self, instance: Instance | None = None, finish: bool = True, **limits: Any) -> Json:
        """The answer to a request for a grant that needs consent: to spend from the wallet `alice`."""
        server = instance or self.instance
        item: Json = {"type": "outgoing-payment", "actions": ["create"], "identifier": server.wallet("alice")}
        item |= {"limits": limits} if limits else {}
        interact = {} if finish else {"interact": {"start": ["redirect"]}}
        answer: Json = server.client.request_grant(item, **interact).json()
        return answer

    def approve(self, asked: Json, instance: Instance | None = None) -> str:
        """Consents; the interact_ref, or nothing when the client gave no place to finish at."""
        finished = (instance or self.instance).approve(asked["interact"]["redirect"])
        return parse_qs(urlsplit(finished).query)["interact_ref"][0] if finished else ""

    def resume(
        self, asked: Json, reference: str | None = None, by: Client | None = None, **body: Any
    ) -> httpx2.Response:
        """POST to the continuation URI with an interact_ref, or without any body."""
        follow_up = asked["continue"]
        content = ({"interact_ref": reference} if reference else {}) | body
        return (by or self.client).post(follow_up["uri"], content or None, follow_up["access_token"]["value"])
