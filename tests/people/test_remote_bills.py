"""Consent to paying a bill of another server: what that server publishes of it, as far as it can be read."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from payres.core.protocol.clock import MINUTE, format_time
from payres.core.store.grants import GRANTS
from payres.people import remote_bills
from payres.people.services import people_of
from payres.people.store.remote_bills import REMOTE_BILLS, RemoteBillRecord
from payres.testing.peering import peer
from tests.helpers import TIMEOUT, Json, receiver_of, usd, wait_until
from tests.http_server import reply, serving
from tests.instance import Instance
from tests.interledger.network import EUR, amount, network, set_rate
from tests.operator.pages.browser import hidden_fields, words_of
from tests.people.browser import OwnersBrowser, signed_out

NUMBERS = count(1)
LIMIT = usd(758)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Instance]]:
    """The server of the payers, and that of Bob's shop."""
    with network(tmp_path_factory.mktemp("bills"), "a", "b") as found:
        peer(found[0], found[1])
        yield found


class Asked(OwnersBrowser):
    """The browser of a wallet's owner, whom an app asks for a grant to pay one bill."""

    def __init__(self, server: Instance, bill: str, language: str = "en", limits: Json | None = None) -> None:
        self.owner = f"asked-{next(NUMBERS)}"
        server.create_wallet(self.owner, name="Erin", deposit="100.00")
        super().__init__(server, self.owner, **{"Accept-Language": language})
        item = {"type": "outgoing-payment", "actions": ["create"], "identifier": server.wallet(self.owner)}
        self.item = item | {"limits": {"receiver": bill, "debitAmount": LIMIT} | (limits or {})}
        self.answer = server.client.request_grant(self.item).json()
        self.consent = urlsplit(self.answer["interact"]["redirect"]).path
        self.grant = self.answer["continue"]["uri"].rpartition("/")[2]

    @property
    def record(self) -> RemoteBillRecord | None:
        return self.instance.read(lambda tx: REMOTE_BILLS.get(tx, self.grant))

    def decide(self, shown: dict[str, str], choice: str = "approve") -> httpx2.Response:
        return self.http.post(self.consent, data=shown | {"choice": choice})

    def page(self) -> httpx2.Response:
        answer = self.http.get(self.consent)
        assert answer.status_code == 200, answer.text
        return answer


@pytest.mark.parametrize(
    ("language", "said"),
    [
        (
            "en",
            "Pay Bob USD 7.50 for Pottery class? Plus at most USD 0.08 on the way. Bob gets USD 7.50"
            " Cost on the way, at most USD 0.08 Leaves your wallet, at most USD 7.58"
            " To Bob http://{host}/bob {host} gave this name and the purpose. Who asks",
        ),
        ("de", "Bob USD 7,50 für Pottery class zahlen? Dazu unterwegs höchstens USD 0,08. Bob erhält USD 7,50"),
        (
            "es",
            "¿Pagar USD 7,50 a Bob por Pottery class? Más, como máximo, USD 0,08 por el camino. Bob recibe USD 7,50",
        ),
    ],
)
def test_headline_is_what_the_bills_server_publishes(servers: Sequence[Instance], language: str, said: str) -> None:
    a, b = servers
    bill = receiver_of(b, 750, metadata={"description": "Pottery class"})
    with Asked(a, bill, language) as asked:
        assert words_of(asked.page()).startswith(said.format(host=b.base_url[7:]))
        assert '<bdi class="claimed">Pottery class</bdi>' in asked.page().text


def test_bill_is_read_once_and_then_shown_without_its_server(servers: Sequence[Instance]) -> None:
    a, b = servers
    bill = receiver_of(b, 750, metadata={"description": "Pottery class"})
    with Asked(a, bill) as asked:
        with signed_out(a) as stranger:  # no page for a stranger reads anything
            assert "Pottery" not in words_of(stranger.get(asked.consent))
        assert asked.record is None
        shown = hidden_fields(asked.page())
        requests = len(b.requests)
        assert hidden_fields(asked.page()) == shown
        assert len(b.requests) == requests
        assert asked.decide(shown).status_code == 303
        assert "Bob (" in asked.words("/account/apps")
        host = b.base_url[7:]
        assert f"For one bill BBob ({host})by" in asked.words("/account/apps")
        assert f"To Bob http://{host}/bob What for Pottery class" in asked.words(f"/account/apps/{asked.grant}")
        assert len(b.requests) == requests


def test_history_has_name_purpose_and_host(servers: Sequence[Instance]) -> None:
    a, b = servers
    bill = receiver_of(b, 750, metadata={"description": "Pottery class"})
    with Asked(a, bill) as asked:
        back = asked.decide(hidden_fields(asked.page())).headers["location"]
        reference = dict(one.split("=") for one in urlsplit(back).query.split("&"))["interact_ref"]
        follow_up = asked.answer["continue"]
        given = a.client.post(follow_up["uri"], {"interact_ref": reference}, follow_up["access_token"]["value"]).json()
        quote = a.client.create_quote(a.wallet(asked.owner), bill)["id"]
        body = {"walletAddress": a.wallet(asked.owner), "quoteId": quote}
        created = a.client.post("/outgoing-payments", body, given["access_token"]["value"])
        assert created.status_code == 201, created.text
        ended = a.wait_for(created.json())
        words = asked.words(f"/account/payments/{ended['id'].rpartition('/')[2]}")
        assert f"To Bob http://{b.base_url[7:]}/bob What for Pottery class" in words
        row = "".join(asked.words("/account/activity").split())
        assert f"BobPotteryclass{b.base_url[7:]}byExampleShop" in row


@pytest.mark.parametrize(
    ("bill", "limits", "said"),
    [
        (75, {}, "pay up to USD 7.58 to Bob?"),  # less than the limit by far: the limit stands in the headline
        (5000, {}, "pay up to USD 7.58 to Bob?"),
        (None, {}, "pay up to USD 7.58 to Bob?"),
        (758, {}, "Pay Bob USD 7.58? To Bob"),
        (750, {"interval": "R12/2026-11-27T00:00:00Z/P1M"}, "pay up to USD 7.58 a month, 13 times to Bob?"),
    ],
    ids=["less", "more", "any", "just that", "again and again"],
)
def test_limit_stands_in_the_headline_unless_it_is_the_bills(
    servers: Sequence[Instance], bill: int | None, limits: Json, said: str
) -> None:
    with Asked(servers[0], receiver_of(servers[1], bill), limits=limits) as asked:
        words = words_of(asked.page())
        assert said in words
        assert ("The bill asks for USD" in words) == (bill in {75, 5000, 750})


def test_consent_is_to_what_was_shown(servers: Sequence[Instance]) -> None:
    a, b = servers
    with Asked(a, receiver_of(b, 750, metadata={"description": "Pottery class"})) as asked:
        people_of(a.context).remote_bills._tasks[asked.grant] = None  # type: ignore[assignment] # as if being read
        without = asked.page()
        assert "pay up to USD 7.58 to" in words_of(without)
        assert "Bob" not in words_of(without)
        del people_of(a.context).remote_bills._tasks[asked.grant]
        shown = hidden_fields(asked.page())
        a.write(lambda tx: REMOTE_BILLS.update(tx, asked.grant, purpose="Another class"))
        assert asked.decide(shown).status_code == 409
        assert a.read(lambda tx: GRANTS.by_id(tx, asked.grant)).state == "pending"
        # What the page without it had said is still true.
        assert asked.decide(hidden_fields(without)).status_code == 303
        assert "may now pay up to USD 7.58 to Bob." in words_of(asked.page())


def test_row_goes_with_its_grant(servers: Sequence[Instance]) -> None:
    a, b = servers
    with Asked(a, receiver_of(b, 750)) as asked:
        asked.page()
        assert asked.record is not None

        def purge(tx: Any) -> None:
            tx.execute("DELETE FROM interaction WHERE grant_id = ?", (asked.grant,))
            tx.execute("DELETE FROM access_token WHERE grant_id = ?", (asked.grant,))
            tx.execute('DELETE FROM "grant" WHERE id = ?', (asked.grant,))

        a.write(purge)
        assert asked.record is None


def test_bill_here_is_shown_as_before(servers: Sequence[Instance]) -> None:
    a = servers[0]
    with Asked(a, receiver_of(a, 750, metadata={"description": "Pottery class"})) as asked:
        words = words_of(asked.page())
        assert "pay up to USD 7.58 to Bob?" in words
        assert "Bill: Pottery class" in words
        assert asked.record is None


@pytest.mark.parametrize("is_away", [False, True])
def test_bill_elsewhere_that_ends_while_its_page_is_open_says_so(
    servers: Sequence[Instance], shop: "Shop", *, is_away: bool
) -> None:
    with Asked(servers[0], shop.url) as asked:
        shown = hidden_fields(asked.page())
        shop.bill = {"completed": True, "metadata": {"description": "Another class"}}
        reads = len(shop.asked)
        assert hidden_fields(asked.page()) == shown
        assert len(shop.asked) == reads
        shop.answers[urlsplit(shop.url).path] = (500, {}) if is_away else None
        for server in servers:
            server.clock.advance(31)
        page = asked.page()
        assert words_of(page).startswith("Pay Bob USD 7.50?")
        assert (PAID in words_of(page), 'value="approve"' in page.text) == (not is_away, is_away)
        reads = len(shop.asked)
        asked.page()
        assert len(shop.asked) == reads
        assert asked.decide(shown, "deny").status_code == 303


PAID = "This bill is paid or cancelled, and takes no more money."
EXPIRED = "This bill has expired. Ask for a new one."


@pytest.mark.parametrize("place", ["here", "elsewhere"])
@pytest.mark.parametrize(("end", "said"), [("complete", PAID), ("expire", EXPIRED)])
def test_bill_that_has_ended_since_the_request_says_so(
    servers: Sequence[Instance], place: str, end: str, said: str
) -> None:
    a, b = servers
    server = a if place == "here" else b
    in_a_minute = format_time(server.clock.now() + MINUTE)
    bill = receiver_of(server, 750, expiresAt=in_a_minute)
    with Asked(a, bill) as asked:
        if end == "complete":
            completer = server.client.grant({"type": "incoming-payment", "actions": ["complete"]})
            assert server.client.post(f"{bill}/complete", None, completer).status_code == 200
        else:
            a.clock.advance(90)
            b.clock.advance(90)
        page = asked.page()
        assert said in words_of(page)
        assert "Don’t pay" in words_of(page)
        assert 'value="approve"' not in page.text
        assert asked.decide(hidden_fields(page), "deny").status_code == 303


def test_server_that_asks_for_its_own_bill_is_named_by_the_shop(servers: Sequence[Instance]) -> None:
    """The payer pays on the payment page of the bill, and chooses a wallet elsewhere."""
    a, b = servers
    bill = receiver_of(b, 750, metadata={"description": "Pottery class"})
    path = f"/pay/{bill.rpartition('/')[2]}"
    with OwnersBrowser(a, "alice") as owner, signed_out(b) as payer:
        token = hidden_fields(payer.get(path))["csrf"]
        answer = payer.post(path, data={"csrf": token, "choice": "any", "payer": a.wallet("alice")})
        consent = urlsplit(answer.headers["location"]).path
        words = words_of(owner.http.get(consent))
        host = b.base_url[7:]
        assert words.startswith("Pay Bob USD 7.50 for Pottery class? Plus at most USD 0.0")
        assert "Who asks The server of the bill itself. It controls" in words
        # Not in the headline, once in the facts with the address, and where the browser goes back to.
        assert words.partition("Who asks")[0].count(host) == 2
        owner.http.post(consent, data=hidden_fields(owner.http.get(consent)) | {"choice": "approve"})
        words = owner.words("/account/apps")
        assert f"For one bill BBob ({host})At most USD 7.58, once.Stop" in words


# What other servers do


class Shop:
    """A server of a bill and its wallet, which a test has answer anything else."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, Any] = {}
        self.bill: Json = {}
        self.wallet: Json = {}
        self.stopped = Event()
        self.base = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.append(handler.path)
        given = self.answers.get(handler.path)
        if given == "silent":
            self.stopped.wait(TIMEOUT)
        if isinstance(given, tuple):
            status, headers = given
            return reply(handler, status, **headers)
        members: Json = {"authServer": f"{self.base}/auth"}
        wallet = {"id": f"{self.base}/bob", "publicName": "Bob", "assetCode": "USD", "assetScale": 2}
        wallet |= members | {"resourceServer": self.base}
        ilp = {"type": "ilp", "ilpAddress": "test.shop.1", "sharedSecret": "A" * 43}
        bill = members | {"id": self.url, "walletAddress": f"{self.base}/bob", "completed": False}
        bill |= {"receivedAmount": usd(0), "incomingAmount": usd(750), "methods": [ilp]}
        pages: dict[str, Json] = {
            "/auth": {"access_token": {"value": "t", "expires_in": 600}},
            "/bob": wallet | self.wallet,
            "/incoming-payments/1": bill | self.bill,
        }
        return reply(handler, 200, json.dumps(pages[handler.path]).encode(), **{"Content-Type": "application/json"})

    @property
    def url(self) -> str:
        return f"{self.base}/incoming-payments/1"

    @property
    def host(self) -> str:
        return self.base[7:]


@pytest.fixture
def shop() -> Iterator[Shop]:
    found = Shop()
    with serving(found.answer) as port:
        found.base = f"http://127.0.0.1:{port}"
        yield found
        found.stopped.set()


@contextmanager
def hurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(remote_bills, "WAIT_SECONDS", 0.05)
        yield


@pytest.mark.parametrize(
    ("wallet", "bill", "said"),
    [
        ({"publicName": "B" * 500}, {}, f"Pay {'B' * 47}… USD 7.50?"),
        ({"publicName": "\u202eboB<b>"}, {}, "Pay boB<b> USD 7.50?"),
        ({}, {"metadata": {"description": "<script>\u202ex\n" + "y" * 500}}, f"for <script>x {'y' * 49}…?"),
        ({}, {"incomingAmount": usd(1)}, "pay up to USD 7.58 to Bob?"),
        ({}, {"incomingAmount": usd(2**64 - 1)}, "pay up to USD 7.58 to Bob?"),
        (
            {},
            {
                "receivedAmount": {"value": "0", "assetCode": "EUR", "assetScale": 2},
                "incomingAmount": {"value": "750", "assetCode": "EUR", "assetScale": 2},
            },
            "pay up to USD 7.58 to Bob?",
        ),
        ({"resourceServer": "http://127.0.0.1:1"}, {}, "Pay {host} USD 7.50?"),  # its wallet knows nothing of it
        ({}, {"walletAddress": "http://192.0.2.1/eve"}, "Pay {host} USD 7.50?"),
        ({}, {"completed": True}, "pay up to USD 7.58 to {host}?"),
        ({}, {"id": "http://127.0.0.1:1/incoming-payments/1"}, "pay up to USD 7.58 to {host}?"),
    ],
    ids=["huge", "turned", "markup", "little", "much", "asset", "stranger", "unroutable", "completed", "other id"],
)
def test_other_servers_text_is_text(payres: Instance, shop: Shop, wallet: Json, bill: Json, said: str) -> None:
    shop.wallet, shop.bill = wallet, bill
    with Asked(payres, shop.url) as asked:
        page = asked.page()
        assert said.format(host=shop.host) in words_of(page).partition("To ")[0] + "To"
        assert shop.host in words_of(page)
        assert "<script>" not in page.text.partition("<main")[2].partition("</main>")[0]
        assert "\u202e" not in page.text


@pytest.mark.parametrize(
    ("name", "is_quoted"), [("Bob’s Books", False), ("Bob USD 0.50 for “x”? Nothing", True), ("Shop 24", True)]
)
def test_name_that_could_be_a_part_of_the_sentence_stands_in_quotes(
    payres: Instance, shop: Shop, name: str, is_quoted: bool
) -> None:
    shop.wallet = {"publicName": name}
    with Asked(payres, shop.url) as asked:
        headline = asked.page().text.partition("<h1>")[2].partition("</h1>")[0]
        assert (f'<bdi class="claimed">{name}</bdi>' in headline, f"<bdi>{name}</bdi>" in headline) == (
            is_quoted,
            not is_quoted,
        )


@pytest.mark.parametrize(
    ("path", "answer", "said"),
    [
        ("/incoming-payments/1", (404, {}), "There is no such bill. Ask for a new link."),
        ("/incoming-payments/1", (500, {}), "{host} did not answer: what this bill asks for is not known."),
        ("/incoming-payments/1", (302, {"Location": "http://10.0.0.1/"}), "What {host} says of this bill could not"),
        ("/auth", (403, {}), "What {host} says of this bill could not be read."),
    ],
)
def test_without_it_the_page_says_what_it_can(payres: Instance, shop: Shop, path: str, answer: Any, said: str) -> None:
    shop.answers[path] = answer
    with Asked(payres, shop.url) as asked:
        shown = asked.page()
        assert f"pay up to USD 7.58 to {shop.host}?" in words_of(shown)
        assert said.format(host=shop.host) in words_of(shown)
        assert asked.record is None
        assert asked.decide(hidden_fields(shown)).status_code == 303
        assert f"{shop.host}by Example Shop" in asked.words("/account/apps")


@pytest.mark.parametrize(
    ("asked_for", "said"),
    [
        (
            690,  # at 0.92, 7.50 dollars
            "Pay Bob EUR 6.90? At most USD 7.58 leaves your wallet. Bob gets EUR 6.90 Leaves your wallet, at most"
            " USD 7.58 To Bob",
        ),
        (69, "Let Example Shop pay up to USD 7.58 to Bob? To Bob"),
        (750, "Let Example Shop pay up to USD 7.58 to Bob? To Bob"),  # the limit does not suffice
    ],
)
def test_bill_in_another_currency_says_what_arrives(
    servers: Sequence[Instance], shop: Shop, asked_for: int, said: str
) -> None:
    set_rate("USD", "EUR", "0.92", servers[0])
    shop.bill = {"receivedAmount": amount(0, EUR), "incomingAmount": amount(asked_for, EUR)}
    with Asked(servers[0], shop.url) as asked:
        page = asked.page()
        assert words_of(page).startswith(said)
        assert ("Pay up to USD 7.58" in words_of(page)) == (asked_for == 690)
        assert asked.decide(hidden_fields(page)).status_code == 303


def test_silent_server_holds_one_page_up_and_for_a_moment(
    payres: Instance, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.answers["/incoming-payments/1"] = "silent"
    with hurried(monkeypatch), Asked(payres, shop.url) as asked:
        assert "pay up to USD 7.58" in words_of(asked.page())
        assert f"{shop.host} did not answer: what" in words_of(
            asked.page()
        )  # nobody waits again, and it is not asked again
        wait_until(lambda: len(shop.asked) == 1)  # a busy machine asks a moment later
        shop.answers.clear()
        shop.stopped.set()
        wait_until(lambda: asked.record is not None)
        assert words_of(asked.page()).startswith("Pay Bob USD 7.50?")


def test_one_server_has_few_reads_at_a_time(payres: Instance, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.answers["/incoming-payments/1"] = "silent"
    with hurried(monkeypatch):
        for _ in range(remote_bills.READS_OF_SERVER + 2):
            with Asked(payres, shop.url) as asked:
                assert "pay up to USD 7.58" in words_of(asked.page())
        assert len(shop.asked) <= remote_bills.READS_OF_SERVER
    shop.stopped.set()
    bills = people_of(payres.context).remote_bills
    wait_until(lambda: not bills._tasks)


def test_what_was_read_is_shown_when_its_server_is_gone(payres: Instance, tmp_path: Path) -> None:
    shop = Shop()
    with serving(shop.answer) as port:
        shop.base = f"http://127.0.0.1:{port}"
        asked = Asked(payres, shop.url)
        asked.page()
    with asked:
        assert words_of(asked.page()).startswith("Pay Bob USD 7.50?")
        assert asked.decide(hidden_fields(asked.page())).status_code == 303
        assert f"Bob ({shop.host})by Example Shop" in asked.words("/account/apps")
