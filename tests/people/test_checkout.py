"""Paying a bill here from a wallet on another server, in a browser that the servers send to and fro."""

import asyncio
import html
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from payres.agenda.store import agenda
from payres.client import errors
from payres.core.http.server import settings_of
from payres.core.protocol.clock import DAY, HOUR, MINUTE, SECOND
from payres.core.protocol.limits import BURST_SECONDS
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.rows import number
from payres.interledger.client_transport import GuardedTransport
from payres.interledger.store.remote_resources import REMOTE_RESOURCES
from payres.people.checkout import load
from payres.people.checkout_steps import SETTLES, TOO_FAST
from payres.people.limits import CHECKOUT_RATE
from payres.people.store.checkouts import CHECKOUTS, CheckoutRecord, Stage, change_checkout
from payres.testing import instance as testing
from payres.testing.peering import peer
from tests.helpers import Json, amount, receiver_of, sign_in_token, usd, wait_until
from tests.http_server import reply, serving
from tests.instance import Instance, run_instance
from tests.interledger.network import let_time_pass, network
from tests.operator.pages.browser import words_of
from tests.people.browser import signed_out
from tests.rafiki import WAIT, Rafiki, run_rafiki
from tests.tls import server_tls

LIFETIME = 601  # seconds, after which a token has expired


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Instance]]:
    """The shop's server, and those of two payers; each payer's is a peer of the shop's."""
    with (
        pytest.MonkeyPatch.context() as patched,
        network(tmp_path_factory.mktemp("checkout"), "shop", "one", "two") as found,
    ):
        patched.setattr(agenda, "LOOK_SECONDS", 0.1)
        for payers in found[1:]:
            peer(found[0], payers)
        yield found


class Payer:
    """A payer's browser at the payment page of a new bill."""

    def __init__(self, shop: Instance, http: httpx2.Client, value: int | None = 1250, **members: Any) -> None:
        self.shop = shop
        self.http = http
        self.bill = receiver_of(shop, value, **members)
        self.id = self.bill.rpartition("/")[2]
        self.path = f"/pay/{self.id}"

    def begin(self, wallet: str, **fields: str) -> httpx2.Response:
        """Sends the form."""
        token = sign_in_token(self.http, self.path)
        return self.http.post(self.path, data={"csrf": token, "choice": "any", "payer": wallet} | fields)

    def asked(self, wallet: str, **fields: str) -> str:
        """The URL at the payer's wallet that the browser is sent to."""
        answer = self.begin(wallet, **fields)
        assert answer.status_code == 303, words_of(answer)
        return answer.headers["location"]

    def approved(self, server: Instance, **fields: str) -> str:
        """Where the payer's wallet sends the browser back to."""
        back = server.approve(self.asked(server.wallet("alice"), **fields))
        assert back is not None
        assert back.startswith(f"{self.shop.base_url}{self.path}/return/")
        return back

    def end(self, url: str) -> str:
        """What the page says once nothing is on its way any more."""

        pages: list[httpx2.Response] = []

        def has_ended() -> bool:
            pages.append(self.http.get(url, follow_redirects=True))
            assert (pages[-1].status_code, "interact_ref" in str(pages[-1].url)) == (200, False)
            return "refresh" not in pages[-1].headers

        wait_until(has_ended, pause=0.02)
        return words_of(pages[-1])

    @property
    def received(self) -> int:
        return int(self.shop.client.get(self.bill, token=None).json()["receivedAmount"]["value"])


@contextmanager
def browsing(shop: Instance, value: int | None = 1250, language: str = "en", **members: Any) -> Iterator[Payer]:
    with signed_out(shop, **{"Accept-Language": language}) as http:
        yield Payer(shop, http, value, **members)


@pytest.fixture
def payer(servers: Sequence[Instance]) -> Iterator[Payer]:
    with browsing(servers[0]) as found:
        yield found


def payments_of(server: Instance, receiver: str) -> int:
    return len(server.read(lambda tx: OUTGOING.list(tx, "WHERE receiver = ?", receiver)))


def words(payer: Payer, url: str, status: int = 200) -> str:
    page = payer.http.get(url)
    assert page.status_code == status, page.text
    return words_of(page)


# What should happen


@pytest.mark.parametrize(
    ("value", "typed", "told"), [(1250, "", "USD 12.50"), (None, "7,5", "USD 7.50")], ids=["asked for", "chosen"]
)
def test_payer_pays_from_a_wallet_elsewhere(
    servers: Sequence[Instance], value: int | None, typed: str, told: str
) -> None:
    shop, one, _ = servers
    with browsing(shop, value, metadata={"description": "Order 2041", "returnUrl": "https://shop.example/done"}) as it:
        back = it.approved(one, **({"amount": typed} if typed else {}))
        text = it.end(back)
        assert text.startswith(f"Paid Bob has your {told}. Back to shop.example What for Order 2041 Paid from")
        assert it.received == int(float(told.removeprefix("USD ")) * 100)
        assert payments_of(one, it.bill) == 1
        [record] = shop.read(lambda tx: CHECKOUTS.list(tx, "WHERE incoming_payment_id = ?", it.id))
        assert (record.state, record.pending) == ("paid", None)
        # Again, with and without what the wallet sent: the receipt, and nothing paid twice.
        assert it.end(back) == it.end(back.partition("?")[0]) == text
        assert payments_of(one, it.bill) == 1
        held = "SELECT count(*) FROM \"grant\" WHERE access LIKE '%' || ? || '%' AND state <> 'revoked'"
        wait_until(lambda: one.read(lambda tx: number(tx, held, it.bill)) == 0)  # it permits nothing any more


def test_grant_is_for_just_this_payment(servers: Sequence[Instance], payer: Payer) -> None:
    _, one, _ = servers
    grant_id = payer.asked(one.wallet("alice")).rsplit("/", 2)[1]
    [access] = one.read(
        lambda tx: tx.execute(
            'SELECT access FROM "grant" g JOIN interaction i ON i.grant_id = g.id WHERE i.id = ?', (grant_id,)
        ).fetchone()
    )
    [item] = json.loads(access)
    assert item == {
        "type": "outgoing-payment",
        "actions": ["create", "read", "list"],
        "identifier": one.wallet("alice"),
        "limits": {"receiver": payer.bill, "debitAmount": item["limits"]["debitAmount"]},
    }
    assert 1250 <= int(item["limits"]["debitAmount"]["value"]) < 1300


def test_wallet_that_does_not_allow_it(servers: Sequence[Instance], payer: Payer) -> None:
    _, one, _ = servers
    back = one.deny(payer.asked(one.wallet("alice")))
    assert back is not None
    assert payer.end(back).startswith(
        "Not paid It was not allowed at your wallet, so no money has left it. Begin again"
    )
    assert payments_of(one, payer.bill) == 0
    assert payer.end(payer.approved(one)).startswith("Paid")


def test_wallet_that_was_asked_too_long_ago(servers: Sequence[Instance], payer: Payer) -> None:
    """Nobody said no there."""
    there = payer.asked(servers[1].wallet("alice"))
    let_time_pass(servers, 3600)
    found = re.search(rf'href="({payer.shop.base_url}{payer.path}/return/[^"]+)"', payer.http.get(there).text)
    assert found is not None
    told = "Not paid The time to allow it has expired at your wallet, so no money has left it. You can begin again."
    assert payer.end(html.unescape(found[1])).startswith(told)


def test_bill_that_was_paid_meanwhile_is_not_paid_again(servers: Sequence[Instance], payer: Payer) -> None:
    shop, one, _ = servers
    back = payer.approved(one)
    shop.client.pay(shop.wallet("alice"), payer.bill, receiveAmount=usd(1))
    assert payer.end(back).startswith("Not paid Meanwhile the bill was paid, or it has ended. No money has left")
    assert payments_of(one, payer.bill) == 0
    state = 'SELECT state FROM "grant" ORDER BY created_at DESC LIMIT 1'
    wait_until(lambda: one.read(lambda tx: tx.execute(state).fetchone()[0]) == "revoked")


def test_wallet_here_pays_without_another_server(servers: Sequence[Instance], payer: Payer) -> None:
    assert payer.asked(payer.shop.wallet("alice")).startswith("/account/send?bill=")


# What goes wrong before the payer is sent on


@pytest.mark.parametrize(
    ("typed", "status", "told"),
    [
        ("", 400, "This is no wallet address"),
        ("carol@example", 400, "This is no wallet address"),
        ("javascript:alert(1)", 400, "This is no wallet address"),
        ("https://user:secret@wallet.example/a", 400, "This is no wallet address"),
        ("{one}/nobody", 400, "There is no wallet at this address"),
        ("nobody", 400, "There is no wallet at this address"),
        ("{one}/healthz", 400, "has no wallet that can be asked to pay"),
        ("http://127.0.0.1:1/alice", 400, "127.0.0.1:1 does not answer"),
        ("$no-such-host.invalid/bob", 400, "no-such-host.invalid does not answer"),
    ],
)
def test_wallet_that_cannot_be_asked(
    servers: Sequence[Instance], payer: Payer, typed: str, status: int, told: str
) -> None:
    typed = typed.format(one=servers[1].base_url)
    answer = payer.begin(typed)
    assert answer.status_code == status, words_of(answer)
    assert told in words_of(answer)
    assert "<title>Error: pay Bob" in answer.text
    assert not typed or f'value="{typed}"' in answer.text


def test_certificate_that_is_not_trusted_is_named(payer: Payer, tmp_path: Path) -> None:
    with serving(lambda handler: reply(handler, 200), server_tls(tmp_path / "tls.pem", "wallet.example")) as port:
        page = payer.begin(f"https://127.0.0.1:{port}/bob")
    assert f"The certificate of 127.0.0.1:{port} is not trusted, so it was not asked." in words_of(page)


def test_wallet_that_has_too_little_is_asked_and_does_not_pay(servers: Sequence[Instance]) -> None:
    with browsing(servers[0], 500_000_00) as it:
        told = "Your wallet did not pay It does not have enough money for this. No money has left it. Begin again"
        assert it.end(it.approved(servers[1])).startswith(told)


def test_wallet_from_which_no_money_gets_here(tmp_path: Path, servers: Sequence[Instance]) -> None:
    with run_instance(tmp_path / "far.db", ilp_address="test.far") as far, browsing(servers[0]) as it:
        assert "cannot pay this, or money does not get" in words_of(it.begin(far.wallet("alice")))


@pytest.mark.parametrize("typed", ["", "0", "x", "1e3", "-5"])
def test_amount_that_is_none(servers: Sequence[Instance], typed: str) -> None:
    with browsing(servers[0], None) as it:
        answer = it.begin(servers[1].wallet("alice"), amount=typed)
        assert (answer.status_code, "Amount Type an amount" in words_of(answer)) == (400, True), words_of(answer)


def test_page_is_translated(servers: Sequence[Instance]) -> None:
    with browsing(servers[0], language="de") as it:
        assert "Das ist keine Wallet-Adresse" in words_of(it.begin("@"))
        assert it.end(it.approved(servers[1])).startswith("Bezahlt Bob hat Ihre USD 12,50.")


# Attacks


def test_forms_of_others_begin_nothing(servers: Sequence[Instance], payer: Payer) -> None:
    payer.http.get(payer.path)
    fields = {"choice": "any", "payer": servers[1].wallet("alice")}
    assert payer.http.post(payer.path, data=fields | {"csrf": "x" * 43}).status_code == 403
    other = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    assert payer.http.post(payer.path, data=fields, headers=other).status_code == 403
    with signed_out(servers[0]) as bare:
        assert bare.post(payer.path, data=fields).status_code == 403


def test_return_in_another_browser_pays_nothing(servers: Sequence[Instance], payer: Payer) -> None:
    """An attacker's bill, which the victim has approved, is not paid when the victim is sent on."""
    shop, one, _ = servers
    back = payer.approved(one)
    with signed_out(shop) as victim:
        for _ in range(2):
            page = victim.get(back)
            assert (page.status_code, words_of(page)[:33]) == (403, "This was begun in another browser")
            assert "alice" not in page.text
            victim.get(payer.path)  # now it has a cookie of its own
    assert payments_of(one, payer.bill) == 0
    assert payer.end(back).startswith("Paid")


@pytest.mark.parametrize(
    "query", ["hash={hash}x&interact_ref={ref}", "hash={hash}&interact_ref={ref}x", "interact_ref={ref}"]
)
def test_forged_hash_pays_nothing(servers: Sequence[Instance], payer: Payer, query: str) -> None:
    _, one, _ = servers
    back = payer.approved(one)
    plain, _, given = back.partition("?")
    names = dict(pair.split("=", 1) for pair in given.split("&"))
    forged = f"{plain}?{query.format(hash=names['hash'], ref=names['interact_ref'])}"
    assert words(payer, forged, 400).startswith("This answer is not from your wallet")
    assert payments_of(one, payer.bill) == 0
    assert payer.end(back).startswith("Paid")


def test_answer_of_another_server_pays_nothing(servers: Sequence[Instance], payer: Payer) -> None:
    """A server that was asked cannot have the approval of another one's grant used in its place, nor the other way."""
    _, one, two = servers
    first, second = payer.approved(one), payer.approved(two)
    for back, other in ((first, second), (second, first)):
        mixed = f"{back.partition('?')[0]}?{other.partition('?')[2]}"
        assert words(payer, mixed, 400).startswith("This answer is not from your wallet")
    assert payments_of(one, payer.bill) + payments_of(two, payer.bill) == 0


def test_return_of_one_bill_is_none_of_another(servers: Sequence[Instance], payer: Payer) -> None:
    shop, one, _ = servers
    back = payer.approved(one)
    other = Payer(shop, payer.http)
    assert payer.http.get(back.replace(payer.id, other.id)).status_code == 404
    assert payer.http.get(f"{payer.path}/return/unknown").status_code == 404
    assert payments_of(one, other.bill) + payments_of(one, payer.bill) == 0


def test_what_is_stored_is_no_secret_in_clear(servers: Sequence[Instance], payer: Payer) -> None:
    back = payer.approved(servers[1])
    [row] = payer.shop.read(
        lambda tx: tx.execute("SELECT * FROM checkout WHERE incoming_payment_id = ?", (payer.id,)).fetchall()
    )
    secret = urlsplit(back).path.rpartition("/")[2]
    assert not [value for value in row if secret in str(value) or "continue" in str(value)]


def test_this_server_is_known_to_keep_keys(servers: Sequence[Instance], payer: Payer) -> None:
    payer.approved(servers[1])
    id_hash = row_of(payer).id_hash
    found = payer.shop.read(lambda work: load(work, id_hash))
    assert found is not None
    assert found.asked is not None
    assert found.asked.keeps_keys


def test_begins_are_limited(servers: Sequence[Instance], payer: Payer) -> None:
    token = sign_in_token(payer.http, payer.path)
    fields, many = {"csrf": token, "choice": "any", "payer": "http://127.0.0.1:1/x"}, BURST_SECONDS * CHECKOUT_RATE
    headers = {"X-Forwarded-For": "198.51.100.7"}
    payer.shop.clock.freeze(True)  # or a slow machine never begins too often
    try:
        answers = [payer.http.post(payer.path, data=fields, headers=headers) for _ in range(many + 3)]
    finally:
        payer.shop.clock.freeze(False)
    assert [one.status_code for one in answers] == [400] * many + [429] * 3
    assert "There were too many attempts" in words_of(answers[-1])
    assert 'value="http://127.0.0.1:1/x"' in answers[-1].text


@pytest.mark.parametrize(
    "typed",
    ["https://127.0.0.1/alice", "https://localhost/a", "https://10.0.0.1/", "https://[::1]/a", "$169.254.169.254"],
)
def test_private_addresses_are_not_asked(
    tmp_path_factory: pytest.TempPathFactory, guarded: Instance, typed: str
) -> None:
    with browsing(guarded) as it:
        answer = it.begin(typed)
        assert (answer.status_code, "does not answer" in words_of(answer)) == (400, True), words_of(answer)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with run_instance(tmp_path_factory.mktemp("guarded") / "payres.db", allow_private_hosts=False) as found:
        yield found


# Wallets of servers that do as they please


@pytest.fixture
def wallet(servers: Sequence[Instance]) -> Iterator[Rafiki]:
    """It is asked again only when the test lets time pass."""
    let_time_pass(servers, 60)  # or payments would be begun too often
    with run_rafiki(servers[0].clock) as found, standing_still(*servers):
        yield found


@contextmanager
def standing_still(*servers: Instance) -> Iterator[None]:
    """Their clocks stand still but for what the test moves, and have the same time afterwards."""
    for server in servers:
        server.clock.freeze(True)
    try:
        yield
    finally:
        latest = max(server.clock.now() for server in servers)
        for server in servers:
            server.clock.advance((latest - server.clock.now()) / SECOND)
            server.clock.freeze(False)


INACTIVE = (403, {"error": {"code": "403", "description": "Inactive Token"}})
DEEP = b"[" * 60_000
NOT_OPEN, NO_WAY, SILENT = "has no wallet that can be asked to pay", "cannot pay this", "does not answer"


@pytest.mark.parametrize(
    ("name", "members", "told"),
    [
        ("wallet", (200, b"{" + b" " * 100_000 + b"}"), NOT_OPEN),
        ("wallet", (200, b"{" + b" " * 10_000 + b"}"), NOT_OPEN),
        ("wallet", (200, b"<!DOCTYPE html><title>Welcome</title>"), NOT_OPEN),
        ("wallet", (200, DEEP), NOT_OPEN),
        ("wallet", (302, {"location": "http://127.0.0.1:1/x"}), NOT_OPEN),
        ("wallet", (404, b"<h1>Not found"), "There is no wallet"),
        ("wallet", (503, b""), SILENT),
        ("wallet", {"authServer": "javascript:alert(1)"}, NOT_OPEN),
        ("wallet", {"authServer": "http://user:secret@127.0.0.1"}, NOT_OPEN),
        ("wallet", {"authServer": "http://[::1"}, NOT_OPEN),
        ("wallet", {"resourceServer": 7}, NOT_OPEN),
        ("wallet", {"assetCode": None}, NOT_OPEN),
        ("wallet", {"id": "https://wallet.example/somebody"}, NOT_OPEN),
        ("wallet", {"id": "javascript:alert(1)"}, NOT_OPEN),
        ("grant", {"interact": None}, NOT_OPEN),
        ("grant", {"interact": {"redirect": "javascript:alert(1)", "finish": "n"}}, NOT_OPEN),
        ("grant", {"interact": {"redirect": "data:text/html,x", "finish": "n"}}, NOT_OPEN),
        ("grant", {"interact": {"redirect": "https://bob:secret@a.example/", "finish": "n"}}, NOT_OPEN),
        ("grant", {"interact": {"redirect": "https://a.example/\r\nSet-Cookie: a=b", "finish": "n"}}, NOT_OPEN),
        ("grant", {"interact": {"redirect": "/relative", "finish": "n"}}, NOT_OPEN),
        ("grant", {"continue": {"access_token": {"value": "x"}, "uri": "http://127.0.0.2/c"}}, NOT_OPEN),
        ("grant", {"continue": {"access_token": {"value": "x"}, "uri": "http://a@{url}/c"}}, NOT_OPEN),
        ("grant", {"continue": {"access_token": {}, "uri": "{url}/c"}}, NOT_OPEN),
        *(
            ("grant", {"continue": {"access_token": {"value": value}, "uri": "{url}/c"}}, NOT_OPEN)
            for value in ("t\u20ac", "t\u00e9", "a b", "t\n", "")
        ),
        ("grant", {"interact": None, "access_token": {"value": "x", "manage": "x", "access": []}}, NO_WAY),
        ("grant", (302, {"location": "http://127.0.0.1:1/x"}), NOT_OPEN),
        ("grant", (401, {"error": "invalid_client"}), NO_WAY),
        ("grant", (500, b"<h1>Oops"), SILENT),
        ("grant", (429, b""), SILENT),
        ("quoting", {"access_token": None, "interact": {"redirect": "https://a.example/", "finish": "n"}}, NO_WAY),
        ("quoting", {"access_token": {"value": "a\r\nb", "manage": "x", "access": []}}, NOT_OPEN),
        ("quoting", {"access_token": {"value": "\u00e9", "manage": "x", "access": []}}, NOT_OPEN),
        ("quote", {"receiver": "https://evil.example/incoming-payments/1"}, NOT_OPEN),
        ("quote", {"receiveAmount": usd(1)}, NOT_OPEN),
        ("quote", {"receiveAmount": amount(1250, "EUR")}, NOT_OPEN),
        ("quote", {"debitAmount": usd("-1")}, NOT_OPEN),
        ("quote", {"walletAddress": "https://wallet.example/another"}, NOT_OPEN),
        ("quote", {"id": None}, NOT_OPEN),
        ("quote", {"method": "card"}, NOT_OPEN),
        ("quote", (403, {"error": {"code": "403", "description": "Inactive Token"}}), NO_WAY),
        ("quote", (400, {"error": {"code": "400", "description": "invalid receiver"}}), NO_WAY),
    ],
)
def test_hostile_server_is_not_gone_to(payer: Payer, wallet: Rafiki, name: str, members: Any, told: str) -> None:
    def answer(body: Json) -> tuple[int, Any] | None:
        if isinstance(members, tuple):
            return members
        host = (
            json.dumps(members).replace("a@{url}", wallet.url.replace("://", "://a@")[7:]).replace("{url}", wallet.url)
        )
        return wallet.with_members(name, **json.loads(host))(body)

    wallet.answers[name] = answer
    found = payer.begin(wallet.wallet)
    assert (found.status_code, told in words_of(found)) == (400, True), words_of(found)
    assert wallet.refused == []
    assert payer.shop.read(lambda tx: CHECKOUTS.list(tx, "WHERE incoming_payment_id = ?", payer.id)) == []


@pytest.mark.parametrize("member", ["authServer", "resourceServer"])
def test_wallet_that_names_a_server_of_another_provider(
    servers: Sequence[Instance], payer: Payer, wallet: Rafiki, member: str
) -> None:
    """Nobody is sent to one server to consent to what another one would get."""
    wallet.answers["wallet"] = wallet.with_members("wallet", **{member: f"{servers[1].base_url}/"})
    found = payer.begin(wallet.wallet)
    assert (found.status_code, NO_WAY in words_of(found)) == (400, True), words_of(found)
    assert wallet.made("grant") == 0


def test_token_goes_to_no_other_server(servers: Sequence[Instance], payer: Payer, wallet: Rafiki) -> None:
    payer.asked(wallet.wallet)
    with run_rafiki(servers[0].clock) as other:
        wallet.answers["create"] = wallet.with_members("create", id=f"{other.url}/tenant/outgoing-payments/1")
        assert words_of(payer.http.get(wallet.approve(), follow_redirects=True)).startswith("Not known yet")
        assert (other.asked, wallet.made("create")) == ([], 1)


def test_plain_http_is_followed_only_where_private_hosts_are(guarded: Instance) -> None:
    with browsing(guarded) as it:
        assert it.begin("http://wallet.example/alice").status_code == 400


def test_requests_are_what_rafiki_demands(payer: Payer, wallet: Rafiki) -> None:
    assert payer.asked(wallet.wallet).startswith(f"{wallet.url}/auth/interact/1/2?clientName=Shop&clientUri=http%3A")
    plain = wallet.back
    assert words(payer, plain).startswith("Your wallet has not agreed yet Nothing was paid so far.")
    page = payer.http.get(wallet.approve(), follow_redirects=True)
    assert (words_of(page)[:10], page.headers["refresh"]) == ("On its way", "2")
    payer.shop.client.pay(payer.shop.wallet("alice"), payer.bill, receiveAmount=usd(1250))
    assert words(payer, plain).startswith("On its way"), "it was not this wallet that has paid"
    wallet.answers["read"] = wallet.with_members("read", sentAmount=usd(1250))
    assert words(payer, plain).startswith("Paid Bob has your USD 12.50.")
    wait_until(lambda: wallet.asked[-1][0] == "cancel")
    before = len(wallet.asked)
    assert payer.end(wallet.approve()).startswith("Paid")
    assert len(wallet.asked) == before
    assert wallet.refused == []
    once = ["wallet", "quoting", "quote", "grant", "continue", "create", "cancel"]
    assert [name for name, _ in wallet.asked if name != "read"] == once
    assert wallet.asked[2][1]["receiver"] == payer.bill


@pytest.mark.parametrize(
    ("endpoint", "is_url_safe", "signs"),
    [
        ("{url}/auth/tenant", False, ("%2B", "%2F")),
        ("{url}/auth/tenant/", False, ("+", "/")),
        ("{url}/auth/tenant", True, "-_"),
    ],
)
def test_hash_is_known_in_every_spelling(
    payer: Payer, wallet: Rafiki, endpoint: str, is_url_safe: bool, signs: Sequence[str]
) -> None:
    payer.asked(wallet.wallet)
    for attempt in count():
        back = wallet.approve(f"ref{attempt}", endpoint=endpoint.format(url=wallet.url), is_url_safe=is_url_safe)
        if signs == ("+", "/"):  # that nobody has escaped
            back = back.replace("%2B", "+").replace("%2F", "/")
        if all(sign in back.partition("hash=")[2] for sign in signs):
            break
    assert payer.http.get(back).status_code == 303
    assert (wallet.refused, wallet.made("create")) == ([], 1)


def test_payer_chooses_how_much(servers: Sequence[Instance], wallet: Rafiki) -> None:
    with browsing(servers[0], None) as it:
        it.asked(wallet.wallet, amount="7,5")
        assert wallet.quoted["receiveAmount"] == usd(750)
        assert words_of(it.http.get(wallet.approve(), follow_redirects=True)).startswith(
            "On its way Your wallet sends USD 7.50"
        )
        assert wallet.refused == []


@pytest.mark.parametrize(
    ("name", "answer", "told"),
    [
        ("continue", (404, {"error": {"code": "invalid_continuation"}}), "Your wallet did not pay"),
        ("continue", (401, {"error": {"code": "request_denied"}}), "Your wallet did not pay"),
        ("continue", (403, {"error": {"code": "user_denied"}}), "Not paid"),
        ("continue", (200, {"access_token": {"value": "x"}}), "Your wallet did not answer"),
        *(
            ("continue", {"access_token": {"value": value, "manage": "x", "access": []}}, "Your wallet did not answer")
            for value in ("\n", "t\u20ac")
        ),
        ("continue", {"access_token": None}, "Your wallet did not pay"),
        ("continue", (200, b"<html>"), "Your wallet did not answer"),
        ("continue", (200, b" " * 70_000), "Your wallet did not answer"),
        ("create", (400, {"error": {"code": "400"}}), "Your wallet did not pay"),
        ("create", INACTIVE, "Your wallet did not pay It allowed too little, or too late."),
        ("create", (403, {"error": {"code": "insufficient_funds"}}), "Your wallet did not pay It"),
        (
            "create",
            (403, {"error": {"code": "403", "description": "insufficient balance"}}),
            "Your wallet did not pay It",
        ),
        ("create", {"failed": True}, "The payment has failed"),
        ("read", {"failed": True}, "The payment has failed"),
        ("read", {"failed": True, "sentAmount": usd(3)}, "The payment stopped halfway"),
    ],
)
def test_wallet_that_agreed_and_does_not_pay(payer: Payer, wallet: Rafiki, name: str, answer: Any, told: str) -> None:
    payer.asked(wallet.wallet)
    is_whole = isinstance(answer, tuple)
    wallet.answers[name] = (lambda _: answer) if is_whole else wallet.with_members(name, **answer)
    assert payer.end(wallet.approve()).startswith(told)
    assert payer.end(wallet.approve()).startswith(told)
    assert wallet.made("continue") == 1
    if name != "continue":
        wait_until(lambda: wallet.made("cancel") == 1)  # the grant ends with the payment


@pytest.mark.parametrize(
    "answer",
    [
        (500, b""),
        (502, b"<h1>Bad gateway"),
        (303, {"location": "/tenant/outgoing-payments/1"}),
        (201, b"{}"),
        (201, b"<html>"),
        (201, b" " * 70_000),
        {"id": "http://127.0.0.2/outgoing-payments/1"},
        {"walletAddress": "https://wallet.example/another"},
    ],
)
def test_payment_of_unknown_outcome_is_not_made_again(
    servers: Sequence[Instance], payer: Payer, wallet: Rafiki, answer: Any
) -> None:
    """Where the server cannot be asked either what it has."""
    payer.asked(wallet.wallet)
    wallet.answers["create"] = (
        (lambda _: answer) if isinstance(answer, tuple) else wallet.with_members("create", **answer)
    )
    wallet.answers["list"] = lambda _: INACTIVE
    page = payer.http.get(wallet.approve(), follow_redirects=True)
    assert words_of(page).startswith(
        f"Not known yet We do not know yet whether {wallet.url[7:]} has paid, and ask again."
    )
    assert page.headers["refresh"] == "5"
    let_time_pass(servers, 180)
    page = payer.http.get(wallet.approve(), follow_redirects=True)
    assert words_of(page).startswith("Not known yet")
    assert ("Begin again" in page.text, page.headers["refresh"]) == (False, "30")
    wait_until(lambda: wallet.made("list"))
    assert (wallet.made("create"), wallet.made("read")) == (1, 0)
    payer.shop.client.pay(payer.shop.wallet("alice"), payer.bill, receiveAmount=usd(1250))
    assert payer.end(wallet.approve()).startswith("Paid")


# Interruptions


def row_of(payer: Payer) -> CheckoutRecord:
    [record] = payer.shop.read(lambda tx: CHECKOUTS.list(tx, "WHERE incoming_payment_id = ?", payer.id))
    return record


def wait_for(payer: Payer, happens: Callable[[], bool]) -> None:
    """Time passes on the shop's server until its next step is due, and so on. No browser comes."""

    def has_happened() -> bool:
        due_at = row_of(payer).due_at
        if due_at is not None and not happens():
            payer.shop.clock.advance(max(0, due_at - payer.shop.clock.now()) / SECOND)
        return happens()

    wait_until(has_happened, lambda: f"{row_of(payer)}", pause=0.05)


def is_in(payer: Payer, state: Stage) -> bool:
    return row_of(payer).state == state


@pytest.mark.parametrize("name", ["continue", "create"])
def test_server_that_is_down_for_a_while_is_asked_again(payer: Payer, wallet: Rafiki, name: str) -> None:
    """The consent is not lost, nor does anybody have to come back. Nothing has left the wallet by then."""
    payer.asked(wallet.wallet)
    back = wallet.approve()
    if name == "continue":
        wallet.stop()
    else:
        wallet.answers["continue"] = lambda _: wallet.stop()
    page = payer.http.get(back, follow_redirects=True)
    told = f"Your wallet does not answer {wallet.url[7:]} does not answer. Your wallet has agreed, and no money"
    assert (words_of(page)[: len(told)], "Begin again" in page.text) == (told, True)
    assert page.headers["refresh"] == "5"
    assert wallet.made("create") == 0
    wallet.start()
    wait_for(payer, lambda: wallet.made("read") > 0)
    assert (wallet.made("continue"), wallet.made("create"), len(wallet.payments)) == (1, 1, 1)
    assert wallet.refused == []
    assert words(payer, wallet.back).startswith("On its way")


@pytest.mark.parametrize("answer", [(503, b""), (500, b""), (429, b"")])
def test_consent_outlives_a_server_with_a_fault(payer: Payer, wallet: Rafiki, answer: Any) -> None:
    payer.asked(wallet.wallet)
    answers = [answer, answer, None]
    wallet.answers["continue"] = lambda _: answers.pop(0)
    page = payer.http.get(wallet.approve(), follow_redirects=True)
    assert words_of(page).startswith("Your wallet does not answer")
    wait_for(payer, lambda: wallet.made("read") > 0)
    assert (answers, len(wallet.payments), wallet.refused) == ([], 1, [])


def test_consent_that_lapses_meanwhile_pays_nothing(payer: Payer, wallet: Rafiki) -> None:
    payer.asked(wallet.wallet)
    wallet.answers["continue"] = lambda _: (503, b"")
    payer.http.get(wallet.approve(), follow_redirects=True)
    lapsed = {"code": "request_denied", "details": {"reason": "approval_expired"}}
    wallet.answers["continue"] = lambda _: (401, {"error": lapsed})
    wait_for(payer, partial(is_in, payer, "failed"))
    assert words(payer, wallet.back).startswith("Not paid The time to allow it has expired at your wallet, so no money")
    assert (wallet.made("create"), row_of(payer).pending) == (0, None)


def test_silent_server_is_given_up_after_an_hour(payer: Payer, wallet: Rafiki) -> None:
    payer.asked(wallet.wallet)
    wallet.answers["continue"] = lambda _: (503, b"")
    payer.http.get(wallet.approve(), follow_redirects=True)
    wait_for(payer, partial(is_in, payer, "failed"))
    told = f"Your wallet did not answer {wallet.url[7:]} did not answer. No money has left your wallet; you can begin"
    assert words(payer, wallet.back).startswith(told)
    assert wallet.made("continue") < 20
    wait_until(lambda: wallet.made("cancel"))
    assert (wallet.made("create"), wallet.made("cancel"), row_of(payer).pending) == (0, 1, None)


def test_lost_answer_to_the_continuation_pays_nothing(payer: Payer, wallet: Rafiki) -> None:
    """It is given once. The token that nobody has is revoked."""
    payer.asked(wallet.wallet)
    wallet.lost = {"continue"}
    payer.http.get(wallet.approve(), follow_redirects=True)
    wallet.lost = set()
    wait_for(payer, partial(is_in, payer, "failed"))
    assert words(payer, wallet.back).startswith("Your wallet did not pay It allowed too little, or too late.")
    wait_until(lambda: wallet.made("cancel"))
    assert (wallet.made("continue"), wallet.made("create"), wallet.made("cancel")) == (2, 0, 1)


@pytest.mark.parametrize("keeps_keys", [True, False], ids=["key", "list"])
@pytest.mark.parametrize("is_made", [True, False], ids=["made", "not made"])
def test_lost_answer_to_the_creation(payer: Payer, wallet: Rafiki, keeps_keys: bool, is_made: bool) -> None:
    """A server that keeps keys is asked the same again, another one first what it has."""
    wallet.keeps_keys = keeps_keys
    payer.asked(wallet.wallet)
    if is_made:
        wallet.lost = {"create"}
    else:
        wallet.answers["create"] = lambda _: (500, b"")
    page = payer.http.get(wallet.approve(), follow_redirects=True)
    assert words_of(page).startswith(
        f"Not known yet We do not know yet whether {wallet.url[7:]} has paid, and ask again."
    )
    assert "Begin again" not in page.text
    wallet.lost, wallet.answers = set(), {}
    wait_for(payer, lambda: wallet.made("read") > 0)
    again = int(keeps_keys or not is_made)
    assert (wallet.made("create"), wallet.made("list")) == (1 + again, int(not keeps_keys))
    assert (len(wallet.payments), wallet.refused) == (1, [])
    assert words(payer, wallet.back).startswith("On its way")


def test_server_that_is_silent_while_it_pays_is_named(payer: Payer, wallet: Rafiki) -> None:
    payer.asked(wallet.wallet)
    wallet.answers["read"] = lambda _: (503, b"")
    payer.http.get(wallet.approve(), follow_redirects=True)
    wait_for(payer, lambda: row_of(payer).silent is not None)
    page = words(payer, wallet.back)
    assert page.startswith("On its way")
    assert f"{wallet.url[7:]} does not answer now." in page


def test_payment_that_outlasts_its_token_is_asked_with_a_new_one(payer: Payer, wallet: Rafiki) -> None:
    payer.asked(wallet.wallet)
    payer.http.get(wallet.approve(), follow_redirects=True)
    wait_for(payer, lambda: wallet.made("read") > 1)
    wallet.is_expired = True
    wait_for(payer, lambda: wallet.made("rotate") == 1)
    wait_for(payer, lambda: row_of(payer).silent is None and wallet.made("read") > 3)
    wallet.answers["read"] = wallet.with_members("read", failed=True, sentAmount=usd(3))
    assert payer.end(wallet.approve()).startswith("The payment stopped halfway")
    assert wallet.made("rotate") == 1


@pytest.mark.parametrize("before", ["create", "recover with a key", "recover by list"])
def test_consent_outlives_its_token(payer: Payer, wallet: Rafiki, before: str) -> None:
    """The server was silent for longer than the token was good."""
    wallet.keeps_keys = before == "recover with a key"
    payer.asked(wallet.wallet)
    if before == "create":
        wallet.answers["continue"] = lambda _: wallet.stop()
    else:
        wallet.lost = {"create"}
    payer.http.get(wallet.approve(), follow_redirects=True)
    wallet.lost, wallet.is_expired = set(), True
    if before == "create":
        wallet.start()
    wait_for(payer, lambda: wallet.made("read") > 0)
    assert (wallet.made("rotate"), len(wallet.payments)) == (1, 1)


@pytest.mark.parametrize("lost", ["/continue/", "/token/"])
def test_lost_answers_of_payres_cost_no_consent(
    servers: Sequence[Instance], payer: Payer, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives the same token again to who asks again. A token that had expired by then is renewed or rotated."""
    send, answers = GuardedTransport.handle_async_request, list[tuple[str, bytes]]()

    async def lose(self: GuardedTransport, request: httpx2.Request) -> httpx2.Response:
        found = await send(self, request)
        if request.method == "POST" and request.url.path.startswith(("/continue/", "/token/")):
            let_time_pass(servers, 1 if answers else LIFETIME)
            answers.append((request.url.path, found.content))
            if request.url.path.startswith(lost) and [path for path, _ in answers].count(request.url.path) == 1:
                raise errors.AnswerLost("lost")
        return found

    newest = max(server.clock.now() for server in servers)
    for server in servers:
        server.clock.advance((newest - server.clock.now()) / SECOND)
    back = payer.approved(servers[1])
    monkeypatch.setattr(GuardedTransport, "handle_async_request", lose)
    payer.http.get(back, follow_redirects=True)

    def is_paid() -> bool:
        let_time_pass(servers, 5)
        return is_in(payer, "paid")

    wait_until(is_paid, lambda: f"{row_of(payer)}", pause=0.05)
    repeated = [content for path, content in answers if path.startswith(lost)]
    assert (len(repeated), len(set(repeated)), payments_of(servers[1], payer.bill)) == (2, 1, 1)


def test_payment_is_found_among_others(payer: Payer, wallet: Rafiki) -> None:
    payer.asked(wallet.wallet)
    wallet.lost = {"create"}
    payer.http.get(wallet.approve(), follow_redirects=True)
    wallet.lost = set()
    others = [{**wallet.payments[0], "id": f"{wallet.url}/x/{n}", "quoteId": f"{wallet.url}/q/{n}"} for n in range(5)]
    pages = [
        (200, {"pagination": {"hasNextPage": True, "hasPreviousPage": False, "endCursor": "4"}, "result": others}),
        None,
    ]
    wallet.answers["list"] = lambda _: pages.pop(0)
    wait_for(payer, lambda: wallet.made("read") > 0)
    assert (pages, wallet.made("create"), wallet.refused) == ([], 1, [])


def test_refusal_of_the_second_creation_says_nothing_about_the_first(payer: Payer, wallet: Rafiki) -> None:
    """The first request was still on its way when the second was sent, and after its refusal."""
    payer.asked(wallet.wallet)
    wallet.lost = {"create"}
    payer.http.get(wallet.approve(), follow_redirects=True)
    wallet.lost = set()
    empty = {"pagination": {"hasNextPage": False, "hasPreviousPage": False}, "result": []}
    lists = [(200, empty), (200, empty), None]
    wallet.answers["list"] = lambda _: lists.pop(0)
    wait_for(payer, lambda: wallet.made("read") > 0)
    assert (wallet.refused, len(wallet.payments), wallet.made("create")) == (["create: invalid quote"], 1, 2)
    assert (lists, wallet.made("cancel")) == ([], 0)
    assert words(payer, wallet.back).startswith("On its way")


def test_payment_is_not_created_for_a_bill_that_was_paid_meanwhile(payer: Payer, wallet: Rafiki) -> None:
    payer.asked(wallet.wallet)
    wallet.answers["create"] = lambda _: (500, b"")
    payer.http.get(wallet.approve(), follow_redirects=True)
    wallet.answers = {}
    payer.shop.client.pay(payer.shop.wallet("alice"), payer.bill, receiveAmount=usd(1250))
    let_time_pass([payer.shop], SETTLES // SECOND)
    assert payer.end(wallet.back).startswith("Not paid Meanwhile the bill was paid, or it has ended.")
    wait_until(lambda: wallet.made("cancel"))
    assert (wallet.payments, wallet.made("create"), wallet.made("list"), wallet.made("cancel")) == ([], 1, 1, 1)


def test_bill_that_is_paid_while_the_wallet_gives_its_token_is_not_paid_again(payer: Payer, wallet: Rafiki) -> None:
    """The attempt had found the bill open; the unit before the creation looks again."""
    payer.asked(wallet.wallet)

    def paid_meanwhile(_: Any) -> None:
        payer.shop.client.pay(payer.shop.wallet("alice"), payer.bill, receiveAmount=usd(1250))

    wallet.answers["continue"] = paid_meanwhile
    assert payer.end(wallet.approve()).startswith("Not paid Meanwhile the bill was paid, or it has ended.")
    wait_until(lambda: wallet.made("cancel"))
    assert (wallet.payments, wallet.made("create"), wallet.made("continue")) == ([], 0, 1)


def test_money_of_others_that_came_before_is_not_taken_for_the_payers(
    servers: Sequence[Instance], wallet: Rafiki
) -> None:
    with browsing(servers[0], None) as it:
        it.shop.client.pay(it.shop.wallet("alice"), it.bill, receiveAmount=usd(700))
        it.asked(wallet.wallet, amount="7")
        wallet.answers["read"] = wallet.with_members("read", sentAmount=usd(700))  # sent, and still on its way
        it.http.get(wallet.approve(), follow_redirects=True)
        wait_for(it, lambda: wallet.made("read") > 1)
        assert words(it, wallet.back).startswith("On its way")
        assert row_of(it).state == "made"
        it.shop.client.pay(it.shop.wallet("alice"), it.bill, receiveAmount=usd(700))
        assert it.end(wallet.back).startswith("Paid")


def test_part_that_has_arrived_is_told_though_the_payers_server_does_not_know_of_it(
    servers: Sequence[Instance], wallet: Rafiki
) -> None:
    """The answer to its packet was lost."""
    with browsing(servers[0], None) as it:
        it.asked(wallet.wallet, amount="7")
        it.http.get(wallet.approve(), follow_redirects=True)
        wait_for(it, lambda: wallet.made("read") > 1)
        it.shop.client.pay(it.shop.wallet("alice"), it.bill, receiveAmount=usd(3))
        wallet.answers["read"] = wallet.with_members("read", failed=True)
        assert it.end(wallet.back).startswith("The payment stopped halfway")


def test_who_begins_again_does_not_pay_twice(payer: Payer, wallet: Rafiki) -> None:
    payer.asked(wallet.wallet)
    wallet.answers["continue"] = lambda _: (503, b"")
    first = wallet.approve()
    payer.http.get(first, follow_redirects=True)
    wallet.answers = {}
    payer.asked(wallet.wallet)
    assert payer.end(first).startswith("Not paid You have begun again since then, so this was given up.")
    let_time_pass([payer.shop], 60)
    assert words_of(payer.http.get(wallet.approve(), follow_redirects=True)).startswith("On its way")
    assert (wallet.made("create"), len(wallet.payments)) == (1, 1)


@pytest.mark.parametrize("ahead", [0, 120])
def test_payment_that_goes_on_while_the_form_is_open_is_not_begun_again(
    servers: Sequence[Instance], wallet: Rafiki, ahead: int
) -> None:
    with browsing(servers[0], None) as it:
        it.asked(wallet.wallet, amount="7")
        wallet.answers["continue"] = lambda _: (503, b"")
        it.http.get(wallet.approve(), follow_redirects=True)
        wallet.answers = {}
        it.shop.clock.advance(ahead)
        shown = shown_by(it)  # who begins again
        it.shop.clock.advance(-ahead)
        wait_for(it, lambda: wallet.made("read") > 0)
        page = it.begin(wallet.wallet, amount="7", shown=shown)
        told = "Meanwhile your first payment has gone on. Look in your wallet before you pay again."
        assert (page.status_code, told in words_of(page)) == (409, True)
        it.asked(wallet.wallet, amount="7", shown=shown_by(it))  # who has looked


def shown_by(payer: Payer) -> str:
    found = re.search(r'name="shown" value="([0-9a-f]*)"', payer.http.get(payer.path).text)
    assert found is not None
    return found[1]


def test_secrets_are_deleted_after_a_day(payer: Payer, wallet: Rafiki) -> None:
    """Also if nobody begins another payment."""
    payer.asked(wallet.wallet)
    let_time_pass([payer.shop], 86_400)
    wait_until(
        lambda: not payer.shop.read(lambda tx: CHECKOUTS.list(tx, "WHERE id_hash IS NOT NULL AND state = 'asked'"))
    )


def test_clock_that_was_ahead_does_not_delay_it(payer: Payer, wallet: Rafiki) -> None:
    let_time_pass([payer.shop], 40_000)
    payer.asked(wallet.wallet)
    wallet.answers["continue"] = lambda _: (503, b"")
    payer.http.get(wallet.approve(), follow_redirects=True)
    wallet.answers = {}
    let_time_pass([payer.shop], -40_000)
    wallet.granted = payer.shop.clock.now()
    wait_until(partial(is_in, payer, "made"))


def test_clock_that_is_set_back_cancels_no_grant_that_is_needed(payer: Payer, wallet: Rafiki) -> None:
    payer.asked(wallet.wallet)
    let_time_pass([payer.shop], -3 * DAY // SECOND)
    soon = "WHERE due_at > ? AND due_at <= ?"
    wait_until(lambda: payer.shop.read(lambda tx: REMOTE_RESOURCES.list(tx, soon, tx.now + MINUTE, tx.now + HOUR)))
    assert wallet.made("cancel") == 0


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("result=grant_rejected", "Not paid It was not allowed at your wallet"),
        ("result=invalid_interaction&message=interaction%20expired", "Not paid The time to allow it has expired"),
        ("result=unknown_interaction&message=unknown%20interaction", "Not paid The time to allow it has expired"),
    ],
)
def test_consent_that_was_not_given(payer: Payer, wallet: Rafiki, query: str, told: str) -> None:
    payer.asked(wallet.wallet)
    assert payer.end(f"{wallet.back}?{query}").startswith(told)
    assert "Begin again" in payer.http.get(wallet.back).text


def test_server_that_wants_to_be_waited_for(servers: Sequence[Instance], payer: Payer, wallet: Rafiki) -> None:
    wallet.wait = WAIT + 1
    payer.asked(wallet.wallet)
    page = payer.http.get(wallet.approve(), follow_redirects=True)
    assert (words_of(page)[:10], page.headers["refresh"]) == ("One moment", str(WAIT + 1))
    assert wallet.made("continue") == 0
    wallet.answers["continue"] = lambda _: (400, {"error": {"code": "too_fast"}})
    let_time_pass(servers, WAIT + 1)
    wait_until(lambda: payer.http.get(wallet.back).headers["refresh"] == str(TOO_FAST // SECOND))
    assert (words(payer, wallet.back)[:10], wallet.made("continue")) == ("One moment", 1)
    del wallet.answers["continue"]
    wait_for(payer, lambda: wallet.made("read") > 0)
    assert (wallet.refused, wallet.made("continue"), wallet.made("create")) == ([], 2, 1)


@pytest.mark.parametrize("wait", [-(2**63), 2**64 - 1])
def test_wait_that_is_none(servers: Sequence[Instance], payer: Payer, wallet: Rafiki, wait: int) -> None:
    """A minute at most, however long the payer's server would have its payer wait."""
    wallet.wait = wait
    payer.asked(wallet.wallet)
    wallet.wait = 0
    page = payer.http.get(wallet.approve(), follow_redirects=True)
    assert page.headers["refresh"] == ("2" if wait < 0 else "60")


def test_two_returns_at_once_pay_once(payer: Payer, wallet: Rafiki) -> None:
    """The second comes while the first waits for the payer's server."""
    payer.asked(wallet.wallet)
    seen = []

    def answer(_: Json) -> None:
        seen.append(words_of(payer.http.get(wallet.approve(), follow_redirects=True)))

    wallet.answers["continue"] = answer
    assert payer.http.get(wallet.approve(), follow_redirects=True).status_code == 200
    assert [one[:10] for one in seen] == ["One moment"]
    assert (wallet.made("continue"), wallet.made("create")) == (1, 1)


def test_grant_that_an_earlier_version_did_not_note_is_cancelled(payer: Payer, wallet: Rafiki) -> None:
    payer.asked(wallet.wallet)
    payer.shop.write(lambda work: work.execute("DELETE FROM made_elsewhere").rowcount)
    payer.shop.client.pay(payer.shop.wallet("alice"), payer.bill, receiveAmount=usd(1))
    assert payer.end(wallet.approve()).startswith("Not paid Meanwhile the bill was paid")
    wait_until(lambda: wallet.made("cancel"))
    assert wallet.refused == []


@pytest.mark.parametrize(("state", "told"), [("asked", "Your wallet did not pay"), ("made", "On its way")])
def test_payment_that_an_earlier_version_has_begun(payer: Payer, wallet: Rafiki, state: Stage, told: str) -> None:
    """What it has stored cannot be read: nothing is asked, and money that comes is still seen."""
    payer.asked(wallet.wallet)
    old = '{"payer": "https://wallet.example/w", "auth_server": "https://wallet.example/", "token": "secret"}'
    [record] = payer.shop.read(lambda tx: CHECKOUTS.list(tx, "WHERE incoming_payment_id = ?", payer.id))
    before = len(wallet.asked)
    payer.shop.write(lambda work: change_checkout(work, record, state, work.now, pending=old, received_before=0))
    page = payer.http.get(wallet.approve(), follow_redirects=True)
    assert (words_of(page).startswith(told), "Begin again" in page.text) == (True, state == "asked")
    assert {name for name, _ in wallet.asked[before:]} <= {"cancel"}
    payer.shop.client.pay(payer.shop.wallet("alice"), payer.bill, receiveAmount=usd(1250))
    assert payer.end(wallet.approve()).startswith(told if state == "asked" else "Paid")


@pytest.mark.parametrize("junk", [b'"\xff"', b"9" * 5_000, b"[" * 400 + b"]" * 400, b"[" * 900 + b"]" * 900, b"NaN"])
@pytest.mark.parametrize("name", ["quoting", "quote", "continue", "create", "read"])
def test_junk_in_an_answer_is_no_fault_of_ours(payer: Payer, wallet: Rafiki, name: str, junk: bytes) -> None:
    def answer(body: Json) -> tuple[int, Any]:
        status, found = wallet.usual(name, body)
        text = json.dumps(found).encode()
        if name in {"quoting", "continue"}:
            text = text.replace(b'"manage"', b'"junk": ' + junk + b', "manage"')
        return status, text[:-1] + b', "junk": ' + junk + b"}"

    wallet.answers[name] = answer
    begun = payer.begin(wallet.wallet)
    assert begun.status_code in {303, 400}
    if begun.status_code == 303:
        assert payer.http.get(wallet.approve(), follow_redirects=True).status_code == 200


# Servers that are slow


Elapse = Callable[[float], None]


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A shop whose loop takes its time from us."""
    plain = {**settings_of(), "loop": "asyncio"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(testing, "settings_of", lambda: plain)
        with run_instance(tmp_path_factory.mktemp("patient") / "payres.db") as found:
            yield found


@pytest.fixture
def elapse(patient: Instance) -> Iterator[Elapse]:
    """Time stands still for the shop's timeouts but for the seconds that this lets pass."""
    passed = 0.0

    async def count(system: Callable[[], float]) -> None:
        loop = asyncio.get_running_loop()
        now, begun = loop.time(), system()
        setattr(loop, "time", lambda: now + system() - begun)  # noqa: B010 - a method is replaced

    async def move(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    patient._server.call(count(lambda: passed))
    yield lambda seconds: patient._server.call(move(seconds))
    patient._server.call(count(time.monotonic))


@pytest.fixture
def waiting(patient: Instance) -> Iterator[Payer]:
    with browsing(patient) as found:
        yield found


@pytest.fixture
def slow(patient: Instance) -> Iterator[Rafiki]:
    with run_rafiki(patient.clock) as found, standing_still(patient):
        yield found


def slowly(slow: Rafiki, elapse: Elapse, names: Sequence[str], seconds: float) -> None:
    """Has these calls answered only after so many seconds. Who reads the payment then learns that it has failed."""

    def answer(name: str, body: Json) -> tuple[int, Any]:
        elapse(seconds)
        return slow.with_members(name, failed=True)(body) if name == "read" else slow.usual(name, body)

    slow.answers |= {name: partial(answer, name) for name in names}


def test_begin_takes_ten_seconds_at_most(waiting: Payer, slow: Rafiki, elapse: Elapse) -> None:
    slowly(slow, elapse, ["wallet", "quoting", "quote", "grant"], 3.4)
    assert SILENT in words_of(waiting.begin(slow.wallet))
    assert slow.made("grant") == 0, "three answers have taken more than ten seconds"


@pytest.mark.parametrize("name", ["wallet", "quoting", "quote", "grant"])
def test_silent_server_is_asked_once(waiting: Payer, slow: Rafiki, elapse: Elapse, name: str) -> None:
    slowly(slow, elapse, [name], 5)
    assert SILENT in words_of(waiting.begin(slow.wallet))
    assert slow.made(name) == 1


@pytest.mark.parametrize(
    ("names", "seconds", "told", "reads"),
    [
        (["continue"], 5, "Your wallet does not answer", 0),
        (["create"], 5, "Not known yet", 0),
        (["continue", "create"], 3.6, "Not known yet", 0),
        (["read"], 3.2, "On its way", 1),
        (["read"], 2.8, "The payment has failed", 1),
    ],
)
def test_return_takes_ten_seconds_at_most(
    waiting: Payer, slow: Rafiki, elapse: Elapse, names: Sequence[str], seconds: float, told: str, reads: int
) -> None:
    """Seven for the payment, three for the look at it. A payment whose answer is lost may have been made."""
    waiting.asked(slow.wallet)
    slowly(slow, elapse, names, seconds)
    page = waiting.http.get(slow.approve(), follow_redirects=True)
    assert words_of(page).startswith(told)
    assert (slow.made("continue"), slow.made("read")) == (1, reads)
