"""A server that is not payres: wallets, Open Payments with its grants, and an end of Interledger, as Rafiki has them.

It repeats no answer and knows no Idempotency-Key; an unknown id is 401; an owner gets what a bill received when it is
completed or has expired, which comes late.
"""

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import httpx2
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import DAY, SECOND, format_time, parse_time
from payres.core.protocol.gnap import interaction_hash
from payres.core.protocol.identifiers import base64url
from payres.interledger import oer, packets
from payres.interledger.packets import Fulfill, Prepare, Reject
from payres.interledger.stream import ConnectionClose, PacketType
from tests.simulation import foreign_book
from tests.simulation.currencies import converted
from tests.simulation.foreign_book import Account, Bill, Grant, Json, Link, Payment, Taken, amount_of
from tests.simulation.foreign_payer import PATIENCE, Payer
from tests.simulation.resident import http_client, listening
from tests.simulation.world import Node, World

MONTH: Final = 30 * DAY
LIFE, WAIT = 600, 5  # seconds of a token, and until a grant may be continued
CLOSES: Final = (0, 0, 2, 20)  # seconds until a bill that has its amount is closed
LIFETIME: Final = 20 * SECOND  # of a packet of payres
PROMPT: Final = 3 * SECOND  # of it; what is taken later is late
SILENT, TAKEN, LOST = "foreign: silent", "foreign: 502 after", "foreign: 502 before"
PROOF, CLAIM = "foreign: false proof", "foreign: false amount"
ANSWERS: Final = {SILENT: 0.03, TAKEN: 0.04, LOST: 0.06, PROOF: 0.03, CLAIM: 0.01}


class Refused(Exception):
    def __init__(self, status: int, description: str, code: str = "") -> None:
        self.status, self.body = status, {"error": {"code": code or str(status), "description": description}}


class Abroad(NamedTuple):
    """A wallet there."""

    server: "Foreign"
    path: str
    asset: Asset

    @property
    def url(self) -> str:
        return f"{self.server.base_url}/{self.path}"

    @property
    def account(self) -> Account:
        return Account("wallet", self.path, self.asset)


class Foreign(Node):
    """All but its loop outlives a kill. `taken`, by the number that the sender gave it, and `posted` are the packets
    from its peers and to them; `lied` are bills whose payer was told another amount than had arrived."""

    name = ilp = "foreign"
    is_foreign = True

    def __init__(self, world: World) -> None:
        super().__init__(world, self.name, "10.0.8.1")
        self.base_url, self.ilp = f"http://{self.name}.test", f"test.{self.name}"
        self.draws = world.dice(self.name)
        self.book, self.links, self.wallets = foreign_book.Book(), dict[str, Link](), dict[str, Abroad]()
        self.bills, self.payments, self.grants = dict[str, Bill](), dict[str, Payment](), dict[str, Grant]()
        self.taken, self.posted, self.lied = dict[str, Taken](), list[foreign_book.Posted](), set[str]()
        self.doomed: set[str] = set()  # the ILP addresses of bills of which the next packet is lost
        self.lies, self.completes = self.draws.random() < 0.5, self.draws.random() < 0.7
        self.payer = Payer(self)
        self.http: httpx2.AsyncClient
        self._protocol = listening(self._answer)

    def begin(self) -> None:
        self.http = http_client(PATIENCE)
        self.payer.begin()
        self.protocol = self._protocol
        self.boot().spawn(self._work())

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        assert self.loop is not None
        self.loop.spawn(coroutine)

    async def _work(self) -> None:
        while True:
            self.payer.go_on()
            for bill in [one for one in self.bills.values() if one.state == "open"]:
                if min(bill.closes_at or bill.expires_at, bill.expires_at) <= self.now():
                    self._close(bill, "completed" if bill.closes_at else "expired")
            await asyncio.sleep(1)

    def _close(self, bill: Bill, state: str) -> None:
        bill.state = state
        self.book.move(bill.account, bill.payee, self.book.balances[bill.account])

    def ask_for(self, wallet: Abroad, value: int | None, until: int = 0, **about: Any) -> Bill:
        """A bill, of any amount if `value` is None."""
        id, until = self.new_id(), until or self.now() + MONTH
        shown = self.shown("incoming-payments", id, wallet) | about | {"expiresAt": format_time(until)}
        shown |= {} if value is None else {"incomingAmount": amount_of(value, wallet.asset)}
        account, secret = Account("bill", id, wallet.asset), self.draws.randbytes(32)
        bill = self.bills[id] = Bill(shown, account, wallet.account, value, secret, until)
        return bill

    def shown(self, kind: str, id: str, wallet: Abroad) -> Json:
        return {"id": f"{self.base_url}/{kind}/{id}", "walletAddress": wallet.url, "createdAt": format_time(self.now())}

    def new_id(self) -> str:
        return str(self.world.new_uuid())

    def decide(self, id: str, nonce: str, *, consents: bool) -> str:
        """The page to which the browser goes back after its owner has decided."""
        grant = self.grants[id]
        grant.state, grant.reference = "approved" if consents else "denied", self.new_id()
        digest = interaction_hash(grant.finish["nonce"], nonce, grant.reference, f"{self.base_url}/")
        query = {"hash": digest, "interact_ref": grant.reference} if consents else {"result": "grant_rejected"}
        return f"{grant.finish['uri']}?{urlencode(query)}"

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            body = await request.body()
            if scope["path"] == "/ilp":
                answer = await self._answer_packet(request, body)
            else:
                status, content = await self._handled(request, json.loads(body) if body else {})
                answer = JSONResponse(content, status) if content else Response(status_code=status)
        except Refused as refused:
            answer = JSONResponse(refused.body, refused.status)
        except ClientDisconnect:
            return
        await answer(scope, receive, send)

    async def _handled(self, request: Request, said: Json) -> tuple[int, Any]:
        match [request.method, *request.url.path.strip("/").split("/")]:
            case ["GET", path] if path in self.wallets:
                wallet = self.wallets[path]
                about = {"id": wallet.url, "assetCode": wallet.asset.code, "assetScale": wallet.asset.scale}
                return 200, about | {"authServer": f"{self.base_url}/", "resourceServer": self.base_url}
            case ["GET", ".well-known", "pay", "jwks.json"]:
                return 200, {"keys": [self.payer.jwk]}
            case ["POST", ""]:
                return 200, await self._ask_grant(said)
            case ["POST" | "DELETE", "continue", id]:
                return await self._continue(request, said, self.grants.get(id))
            case ["POST" | "DELETE", "token", manage]:
                return await self._manage(request, manage)
            case [_, "incoming-payments", *path]:
                return await self._handled_bills(request, said, *path)
            case ["POST", "quotes"]:
                await self._authorized(request, "quote", "create")
                return 201, await self._quote(said)
            case [_, "outgoing-payments", *path]:
                return await self._handled_payments(request, said, *path)
        raise Refused(404, "Not Found")

    async def _handled_bills(self, request: Request, said: Json, id: str = "", *rest: str) -> tuple[int, Any]:
        if not id:
            await self._authorized(request, "incoming-payment", "create")
            return 201, self._shown_bill(self._create_bill(said))
        bill: Bill = found(self.bills, id)
        if "authorization" not in request.headers:
            received = amount_of(bill.received, bill.account.asset)
            return 200, {"receivedAmount": received, "authServer": f"{self.base_url}/"}
        await self._authorized(request, "incoming-payment", *(["complete"] if rest else ["read", "read-all"]))
        if not rest:
            return 200, self._shown_bill(bill)
        if bill.state != "open":
            raise Refused(409, "wrong state")
        self._close(bill, "completed")
        return 200, {name: value for name, value in self._shown_bill(bill).items() if name != "methods"}

    async def _handled_payments(self, request: Request, said: Json, id: str = "") -> tuple[int, Any]:
        if request.method == "POST":
            return 201, self._pay(await self._authorized(request, "outgoing-payment", "create"), said)
        payment = found(self.payments, id) if id else None
        grant = await self._authorized(request, "outgoing-payment", "read")
        if payment:
            return 200, self._shown_payment(payment)
        made = [self._shown_payment(one) for one in self.payments.values() if one.client == grant.client]
        return 200, {"pagination": {"hasNextPage": False, "hasPreviousPage": False}, "result": made[:-6:-1]}

    async def _know(self, client: str, status: int = 401) -> None:
        """Looks for the client's keys, which have to be there; whether they signed others test."""
        try:
            (await self.http.get(f"{client}/jwks.json")).json()["keys"][0]
        except (httpx2.HTTPError, ValueError, LookupError) as error:
            raise Refused(status, "could not retrieve client keys", "invalid_client") from error

    async def _ask_grant(self, said: Json) -> Json:
        await self._know(said["client"], 400)
        access = said["access_token"]["access"]
        if not self.completes and any("complete" in item["actions"] for item in access):
            raise Refused(400, "complete is not granted", "invalid_request")
        id, secret, nonce = self.new_id(), self.draws.randbytes(10).hex(), self.draws.randbytes(8).hex()
        grant = self.grants[id] = Grant(said["client"], access, secret, self.now())
        going_on: Json = {"access_token": {"value": secret}, "uri": f"{self.base_url}/continue/{id}", "wait": WAIT}
        if all(item["type"] != "outgoing-payment" for item in access):
            return {"access_token": self._give(grant), "continue": going_on}
        grant.finish, grant.state = said["interact"]["finish"], "pending"
        interact = {"redirect": f"{self.base_url}/interact/{id}/{nonce}", "finish": nonce}
        return {"interact": interact, "continue": going_on}

    def _give(self, grant: Grant) -> Json:
        grant.token, grant.manage, grant.ends_at = self.new_id(), self.new_id(), self.now() + LIFE * SECOND
        manage = f"{self.base_url}/token/{grant.manage}"
        return {"value": grant.token, "manage": manage, "expires_in": LIFE, "access": grant.access}

    async def _continue(self, request: Request, said: Json, grant: Grant | None) -> tuple[int, Any]:
        if grant is None or grant.state == "revoked" or request.headers["authorization"] != f"GNAP {grant.secret}":
            raise Refused(401, "invalid grant", "invalid_continuation")
        await self._know(grant.client)
        if request.method == "DELETE":
            grant.state = "revoked"
            return 204, None
        if said.get("interact_ref") != grant.reference or grant.state == "denied":
            raise Refused(404, "grant not found", "invalid_continuation")
        if self.now() < grant.made_at + WAIT * SECOND:
            raise Refused(400, 'continued grant faster than "wait" period', "too_fast")
        if grant.state != "approved":
            raise Refused(401, "grant interaction not approved", "request_denied")
        grant.state = "issued"
        going_on = {"access_token": {"value": grant.secret}, "uri": str(request.url)}
        return 200, {"access_token": self._give(grant), "continue": going_on}

    async def _manage(self, request: Request, manage: str) -> tuple[int, Any]:
        grant = next((one for one in self.grants.values() if one.manage == manage), None)
        if grant is None or grant.state == "revoked":
            raise Refused(401, "invalid access token", "invalid_client")
        await self._know(grant.client)
        if grant.manage != manage:
            raise Refused(404, "invalid access token", "invalid_rotation")
        if request.method == "POST":
            return 200, {"access_token": self._give(grant)}
        grant.token = grant.manage = ""
        return 204, None

    async def _authorized(self, request: Request, kind: str, *actions: str) -> Grant:
        shown = request.headers.get("authorization")
        grant = next((one for one in self.grants.values() if shown == f"GNAP {one.token}" and one.token), None)
        if grant is None or grant.state == "revoked" or grant.ends_at <= self.now():
            raise Refused(403, "Inactive Token")
        if not any(item["type"] == kind and {*actions} & {*item["actions"]} for item in grant.access):
            raise Refused(403, "Insufficient Grant")
        await self._know(grant.client)
        return grant

    def _wallet(self, said: Json) -> Abroad:
        return self.wallets[said["walletAddress"].rpartition("/")[2]]

    def _create_bill(self, said: Json) -> Bill:
        wallet, wanted, until = self._wallet(said), said.get("incomingAmount"), said.get("expiresAt")
        expires_at = parse_time(until) if until else self.now() + MONTH
        if (wanted and wanted["assetCode"] != wallet.asset.code) or not self.now() < expires_at <= self.now() + MONTH:
            raise Refused(400, "invalid amount or expiresAt")
        about = {"metadata": said["metadata"]} if "metadata" in said else {}
        return self.ask_for(wallet, int(wanted["value"]) if wanted else None, expires_at, **about)

    async def _quote(self, said: Json) -> Json:
        debit, receive = (int(said[name]["value"]) if name in said else 0 for name in ("debitAmount", "receiveAmount"))
        quote = await self.payer.quote(self._wallet(said), said["receiver"], debit, receive)
        if quote is None:
            raise Refused(400, "invalid receiver")
        return quote.shown | {"method": "ilp", "expiresAt": format_time(self.now() + 300 * SECOND)}

    def _pay(self, grant: Grant, said: Json) -> Json:
        payment = self.payments.get(said["quoteId"].rpartition("/")[2])
        limits: Json = next(item for item in grant.access if item["type"] == "outgoing-payment").get("limits", {})
        if payment is None or payment.state != "quoted":
            raise Refused(400, "invalid quote")
        if payment.debit > int(limits["debitAmount"]["value"]) or payment.shown["receiver"] != limits["receiver"]:
            raise Refused(403, "unauthorized")
        payment.client = grant.client
        self.payer.pay(payment)
        return self._shown_payment(payment)

    def _shown_bill(self, bill: Bill) -> Json:
        address, secret = f"{self.ilp}.{bill.account.name}", base64url(bill.secret)
        method = {"type": "ilp", "ilpAddress": address, "sharedSecret": secret}
        received, methods = amount_of(bill.received, bill.account.asset), [method] if bill.state == "open" else []
        return bill.shown | {"completed": bill.state == "completed", "receivedAmount": received, "methods": methods}

    def _shown_payment(self, payment: Payment) -> Json:
        quote = payment.shown["id"]
        about = {"id": quote.replace("/quotes/", "/outgoing-payments/"), "quoteId": quote}
        sent = amount_of(payment.sent, payment.payer.asset)
        return payment.shown | about | {"failed": payment.state == "failed", "sentAmount": sent}

    async def _answer_packet(self, request: Request, body: bytes) -> Response:
        bearer, prepare = request.headers.get("authorization", ""), oer.decode_prepare(body)
        link = next((one for one in self.links.values() if bearer == f"Bearer {one.incoming}"), None)
        if link is None:
            return Response(b"", 401)
        reply, kind = self._take(link, prepare, request.headers.get("request-id", ""))
        if kind == SILENT:
            await asyncio.sleep(2 * LIFETIME / SECOND)
        if kind in (SILENT, TAKEN, LOST):
            return Response(b"", 502)
        return Response(oer.encode_packet(reply), media_type="application/octet-stream")

    def _take(self, link: Link, prepare: Prepare, id: str) -> tuple[packets.Reply, str]:
        """The answer, and what happens to it."""
        bill = self.bills.get(prepare.destination.removeprefix(f"{self.ilp}.").partition(".")[0])
        if prepare.amount > link.largest:
            return Reject("F08", data=packets.too_large_data(prepare.amount, link.largest)), ""
        if bill is None:
            return Reject("F02"), ""
        try:
            asked = bill.shared.decrypt_packet(prepare.data)
        except ValueError:
            return Reject("F06"), ""
        arrives = converted(prepare.amount, link.asset, bill.account.asset)
        proof = bill.shared.fulfillment(prepare.data)
        is_good = arrives >= asked.prepare_amount and Fulfill(proof).fits(prepare.condition)
        if not is_good or any(isinstance(frame, ConnectionClose) for frame in asked.frames):
            return Reject("F99", data=bill.told(PacketType.REJECT, asked.sequence, arrives)), ""
        if bill.state != "open" or self.book.balances[link.account] - prepare.amount < -link.limit:
            return Reject("F02" if bill.state != "open" else "T04"), ""
        kind = self._draw(prepare.destination)
        if kind == PROOF:
            proof = proof[::-1]
        elif kind != LOST:
            self._credit(link, bill, prepare, id)
        if kind == CLAIM:
            self.lied.add(bill.shown["id"])
            arrives *= self.draws.choice((0, 2))
        return Fulfill(proof, bill.told(PacketType.FULFILL, asked.sequence, arrives)), kind

    def _draw(self, destination: str) -> str:
        """What happens to the answer to a packet with money."""
        kind, number = self.world.drawn("foreign answers", ANSWERS) if self.world.network.shares else ("", "")
        if destination in self.doomed:
            self.doomed.remove(destination)
            kind, number = LOST, self.world.next_of("foreign first")
        is_told = kind and (self.lies or kind not in (PROOF, CLAIM))
        return kind if is_told and self.world.happens(kind, number) else ""

    def _credit(self, link: Link, bill: Bill, prepare: Prepare, id: str) -> None:
        age = self.world.nodes[link.name].now() - prepare.expires_at + LIFETIME
        if id in self.taken:
            self.world.trouble.append(f"{link.name} has sent the packet {id} again, for {bill.shown['id']}")
        self.taken[id] = Taken(link.name, bill.shown["id"], prepare.amount, not 0 <= age <= PROMPT)
        self.world.counts[f"abroad: packets taken{' late' if self.taken[id].is_late else ''}"] += 1
        bill.received += self.book.move(link.account, bill.account, prepare.amount)
        if bill.value is not None and bill.received >= bill.value and bill.closes_at is None:
            bill.closes_at = self.now() + self.draws.choice(CLOSES) * SECOND


def found(records: Mapping[str, Any], id: str) -> Any:
    """Raises Refused: what is not there, or was deleted, is not said to be missing."""
    record = records.get(id)
    if record is None or record.state == "quoted" or (record.state == "expired" and not record.received):
        raise Refused(401, "Unauthorized")
    return record
