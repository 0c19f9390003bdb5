"""Paying a bill here from a wallet on another server, in a browser that the servers send to and fro."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from payres.limits import BURST_SECONDS, CHECKOUT_RATE
from payres.store.checkouts import CHECKOUTS
from payres.store.payments import OUTGOING
from payres.testing.peering import peer
from tests.helpers import Json, amount, receiver_of, sign_in_token, usd, wait_until
from tests.http_server import reply, serving
from tests.instance import Instance, run_instance
from tests.interledger.network import let_time_pass, network
from tests.pages.account.browser import signed_out
from tests.pages.admin.browser import words_of


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Instance]]:
    """The shop's server, and those of two payers; each payer's is a peer of the shop's."""
    with network(tmp_path_factory.mktemp("checkout"), "shop", "one", "two") as found:
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

        wait_until(has_ended)
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
        "actions": ["create", "read"],
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


def test_bill_that_was_paid_meanwhile_is_not_paid_again(servers: Sequence[Instance], payer: Payer) -> None:
    shop, one, _ = servers
    back = payer.approved(one)
    shop.client.pay(shop.wallet("alice"), payer.bill, receiveAmount=usd(1))
    assert payer.end(back).startswith("Not paid Meanwhile the bill was paid, or it has ended. No money has left")
    assert payments_of(one, payer.bill) == 0
    state = one.read(lambda tx: tx.execute('SELECT state FROM "grant" ORDER BY created_at DESC LIMIT 1').fetchone()[0])
    assert state == "revoked"


def test_wallet_here_pays_without_another_server(servers: Sequence[Instance], payer: Payer) -> None:
    assert payer.asked(payer.shop.wallet("alice")).startswith("/account/send?to=")


# What goes wrong before the payer is sent on


@pytest.mark.parametrize(
    ("typed", "status", "told"),
    [
        ("", 400, "This is no wallet address"),
        ("carol@example", 400, "This is no wallet address"),
        ("javascript:alert(1)", 400, "This is no wallet address"),
        ("https://user:secret@wallet.example/a", 400, "This is no wallet address"),
        ("{one}/nobody", 422, "There is no wallet at this address"),
        ("{one}/healthz", 422, "has no wallet that can be asked to pay"),
        ("http://127.0.0.1:1/alice", 422, "127.0.0.1:1 does not answer"),
        ("$no-such-host.invalid/bob", 422, "no-such-host.invalid does not answer"),
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


def test_begins_are_limited(servers: Sequence[Instance], payer: Payer) -> None:
    token = sign_in_token(payer.http, payer.path)
    fields, many = {"csrf": token, "choice": "any", "payer": "http://127.0.0.1:1/x"}, BURST_SECONDS * CHECKOUT_RATE
    headers = {"X-Forwarded-For": "198.51.100.7"}
    answers = [payer.http.post(payer.path, data=fields, headers=headers) for _ in range(many + 3)]
    assert [one.status_code for one in answers] == [422] * many + [429] * 3
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
        assert (answer.status_code, "does not answer" in words_of(answer)) == (422, True), words_of(answer)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with run_instance(tmp_path_factory.mktemp("guarded") / "payres.db", allow_private_hosts=False) as found:
        yield found


# Wallets of servers that do as they please


class Wallet:
    """Another provider's server: each answer as Open Payments has it, unless a test sets another. It demands nothing
    and leaves out what is optional."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: dict[str, Callable[[Json], tuple[int, Any] | None]] = {}
        self.asked: list[tuple[str, Json]] = []

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers.get("content-length", 0))) or b"{}")
        name = f"{handler.command} {handler.path.split('?')[0]}"
        self.asked.append((name, body))
        status, found = (self.answers[name](body) if name in self.answers else None) or self.usual(name, body)
        if isinstance(found, dict) and "location" in found:
            return reply(handler, status, Location=found["location"])
        text = found if isinstance(found, bytes) else json.dumps(found).encode()
        return reply(handler, status, text, **{"Content-Type": "application/json"})

    def usual(self, name: str, body: Json) -> tuple[int, Any]:
        there = {"assetCode": "USD", "assetScale": 2}
        match name:
            case "GET /w":
                return 200, {"id": f"{self.url}/w", **there, "authServer": self.url, "resourceServer": self.url}
            case "POST /" if "interact" not in body:
                return 200, {"access_token": {"value": "quoting"}}
            case "POST /":
                self.nonce = body["interact"]["finish"]["nonce"]
                self.back = body["interact"]["finish"]["uri"]
                follow_up = {"access_token": {"value": "going-on"}, "uri": f"{self.url}/continue"}
                return 200, {"interact": {"redirect": f"{self.url}/ask", "finish": "theirs"}, "continue": follow_up}
            case "POST /quotes":
                receive = body["receiveAmount"]
                quoted = {"id": f"{self.url}/quotes/1", "receiver": body["receiver"], "receiveAmount": receive}
                return 201, quoted | {"debitAmount": receive}
            case "POST /continue":
                return 200, {"access_token": {"value": "paying"}}
            case "POST /outgoing-payments" | "GET /outgoing-payments/1":
                return 201, {"id": f"{self.url}/outgoing-payments/1", "sentAmount": usd(0)}
        return 404, {}

    def approve(self, reference: str = "ref") -> str:
        """Where the browser is sent back to."""
        text = "\n".join((self.nonce, "theirs", reference, f"{self.url}/"))
        # In base64url without padding, as the standard has it.
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        return f"{self.back}?hash={digest}&interact_ref={reference}"

    def made(self, name: str) -> int:
        return [one for one, _ in self.asked].count(name)


@pytest.fixture
def wallet() -> Iterator[Wallet]:
    found = Wallet()
    with serving(found.answer) as port:
        found.url = f"http://127.0.0.1:{port}"
        yield found


def with_members(wallet: Wallet, name: str, **members: Any) -> Callable[[Json], tuple[int, Any]]:
    """The usual answer with other members; None leaves one out."""

    def answer(body: Json) -> tuple[int, Any]:
        status, found = wallet.usual(name, body)
        return status, {key: value for key, value in (found | members).items() if value is not None}

    return answer


DEEP = b"[" * 60_000
NOT_OPEN, NO_WAY, SILENT = "has no wallet that can be asked to pay", "cannot pay this", "does not answer"


@pytest.mark.parametrize(
    ("name", "members", "told"),
    [
        ("GET /w", (200, b"{" + b" " * 100_000 + b"}"), NOT_OPEN),
        ("GET /w", (200, DEEP), NOT_OPEN),
        ("GET /w", (302, {"location": "http://127.0.0.1:1/x"}), "There is no wallet"),
        ("GET /w", {"authServer": "javascript:alert(1)"}, NOT_OPEN),
        ("GET /w", {"authServer": "http://user:secret@127.0.0.1"}, NOT_OPEN),
        ("GET /w", {"resourceServer": 7}, NOT_OPEN),
        ("GET /w", {"assetCode": None}, NOT_OPEN),
        ("GET /w", {"id": "https://wallet.example/somebody"}, NOT_OPEN),
        ("POST /", {"interact": None}, NOT_OPEN),
        ("POST /", {"interact": {"redirect": "javascript:alert(1)", "finish": "n"}}, NOT_OPEN),
        ("POST /", {"interact": {"redirect": "data:text/html,x", "finish": "n"}}, NOT_OPEN),
        ("POST /", {"interact": {"redirect": "https://a.example/\r\nSet-Cookie: a=b", "finish": "n"}}, NOT_OPEN),
        ("POST /", {"interact": {"redirect": "/relative", "finish": "n"}}, NOT_OPEN),
        ("POST /", {"continue": {"access_token": {"value": "x"}, "uri": "http://127.0.0.2/c"}}, NOT_OPEN),
        ("POST /", {"continue": {"access_token": {"value": "a\r\nb"}, "uri": "{url}/c"}}, NOT_OPEN),
        ("POST /", (302, {"location": "http://127.0.0.1:1/x"}), SILENT),
        ("POST /", (401, {"error": "invalid_client"}), NO_WAY),
        ("POST /", (500, b"<h1>Oops"), SILENT),
        ("POST /quotes", {"receiver": "https://evil.example/incoming-payments/1"}, NOT_OPEN),
        ("POST /quotes", {"receiveAmount": usd(1)}, NOT_OPEN),
        ("POST /quotes", {"debitAmount": amount(1250, "EUR")}, NOT_OPEN),
        ("POST /quotes", {"debitAmount": usd("-1")}, NOT_OPEN),
        ("POST /quotes", {"walletAddress": "https://wallet.example/another"}, NOT_OPEN),
        ("POST /quotes", {"id": None}, NOT_OPEN),
        ("POST /quotes", (400, {"error": {"code": "400", "description": "invalid receiver"}}), NO_WAY),
    ],
)
def test_hostile_server_is_not_gone_to(payer: Payer, wallet: Wallet, name: str, members: Any, told: str) -> None:
    def answer(body: Json) -> tuple[int, Any] | None:
        if name == "POST /" and "interact" not in body:
            return None
        if isinstance(members, tuple):
            return members
        return with_members(wallet, name, **json.loads(json.dumps(members).replace("{url}", wallet.url)))(body)

    wallet.answers[name] = answer
    found = payer.begin(f"{wallet.url}/w")
    assert (found.status_code, told in words_of(found)) == (422, True), words_of(found)
    assert payer.shop.read(lambda tx: CHECKOUTS.list(tx, "WHERE incoming_payment_id = ?", payer.id)) == []


def test_plain_http_is_followed_only_where_private_hosts_are(guarded: Instance) -> None:
    with browsing(guarded) as it:
        assert it.begin("http://wallet.example/alice").status_code == 422


def test_server_that_leaves_out_what_is_optional_is_paid_from(payer: Payer, wallet: Wallet) -> None:
    assert payer.asked(f"{wallet.url}/w") == f"{wallet.url}/ask"
    plain = wallet.back
    assert words(payer, plain).startswith("Your wallet has not agreed yet Nothing was paid so far.")
    page = payer.http.get(wallet.approve(), follow_redirects=True)
    assert (words_of(page)[:10], page.headers["refresh"]) == ("On its way", "2")
    payer.shop.client.pay(payer.shop.wallet("alice"), payer.bill, receiveAmount=usd(1250))
    assert words(payer, plain).startswith("On its way"), "it was not this wallet that has paid"
    wallet.answers["GET /outgoing-payments/1"] = with_members(wallet, "GET /outgoing-payments/1", sentAmount=usd(1250))
    assert words(payer, plain).startswith("Paid Bob has your USD 12.50.")
    assert (wallet.made("POST /continue"), wallet.made("POST /outgoing-payments")) == (1, 1)
    before = len(wallet.asked)
    assert payer.end(wallet.approve()).startswith("Paid")
    assert len(wallet.asked) == before


@pytest.mark.parametrize(
    ("name", "answer", "told"),
    [
        ("POST /continue", (404, {"error": {"code": "invalid_continuation"}}), "Your wallet did not pay"),
        ("POST /continue", (200, {"access_token": {"value": "\n"}}), "Your wallet did not answer"),
        ("POST /continue", (503, b""), "Your wallet did not answer"),
        ("POST /outgoing-payments", (400, {"error": {"code": "400"}}), "Your wallet did not pay"),
        (
            "POST /outgoing-payments",
            (403, {"error": {"code": "insufficient_funds"}}),
            "Your wallet did not pay It",
        ),
        ("POST /outgoing-payments", {"failed": True}, "The payment has failed"),
        ("GET /outgoing-payments/1", {"failed": True}, "The payment has failed"),
        ("GET /outgoing-payments/1", {"failed": True, "sentAmount": usd(3)}, "The payment stopped halfway"),
    ],
)
def test_wallet_that_agreed_and_does_not_pay(payer: Payer, wallet: Wallet, name: str, answer: Any, told: str) -> None:
    payer.asked(f"{wallet.url}/w")
    is_whole = isinstance(answer, tuple)
    wallet.answers[name] = (lambda _: answer) if is_whole else with_members(wallet, name, **answer)
    assert payer.end(wallet.approve()).startswith(told)
    assert payer.end(wallet.approve()).startswith(told)
    assert wallet.made("POST /continue") == 1


@pytest.mark.parametrize("answer", [(500, b""), (201, b"{}")])
def test_payment_of_unknown_outcome_is_not_made_again(
    servers: Sequence[Instance], payer: Payer, wallet: Wallet, answer: Any
) -> None:
    payer.asked(f"{wallet.url}/w")
    wallet.answers["POST /outgoing-payments"] = lambda _: answer
    page = payer.http.get(wallet.approve(), follow_redirects=True)
    assert words_of(page).startswith("On its way")
    let_time_pass(servers, 180)
    page = payer.http.get(wallet.approve(), follow_redirects=True)
    assert words_of(page).startswith("Not here yet Bob has not got it yet. Look in your wallet whether it has paid")
    assert ("Begin again" in page.text, page.headers["refresh"]) == (False, "30")
    assert wallet.made("POST /outgoing-payments") == 1
    payer.shop.client.pay(payer.shop.wallet("alice"), payer.bill, receiveAmount=usd(1250))
    assert payer.end(wallet.approve()).startswith("Paid")


def test_server_that_wants_to_be_waited_for(servers: Sequence[Instance], payer: Payer, wallet: Wallet) -> None:
    follow_up = {"access_token": {"value": "going-on"}, "uri": f"{wallet.url}/continue", "wait": 5}
    usual = with_members(wallet, "POST /", **{"continue": follow_up})
    wallet.answers["POST /"] = lambda body: usual(body) if "interact" in body else None
    wallet.answers["POST /continue"] = lambda _: (400, {"error": {"code": "too_fast"}})
    payer.asked(f"{wallet.url}/w")
    page = payer.http.get(wallet.approve())
    assert (words_of(page), page.headers["refresh"]) == (words_of(page), "5")
    assert words_of(page).startswith("One moment Your wallet agrees.")
    assert wallet.made("POST /continue") == 0
    let_time_pass(servers, 5)
    assert words(payer, wallet.approve()).startswith("One moment")
    assert wallet.made("POST /continue") == 1
    del wallet.answers["POST /continue"]
    let_time_pass(servers, 5)
    assert payer.http.get(wallet.approve()).status_code == 303
    assert (wallet.made("POST /continue"), wallet.made("POST /outgoing-payments")) == (2, 1)


def test_two_returns_at_once_pay_once(payer: Payer, wallet: Wallet) -> None:
    """The second comes while the first waits for the payer's server."""
    payer.asked(f"{wallet.url}/w")
    seen = []

    def answer(_: Json) -> None:
        seen.append(words_of(payer.http.get(wallet.approve(), follow_redirects=True)))

    wallet.answers["POST /continue"] = answer
    assert payer.http.get(wallet.approve(), follow_redirects=True).status_code == 200
    assert [one[:10] for one in seen] == ["On its way"]
    assert (wallet.made("POST /continue"), wallet.made("POST /outgoing-payments")) == (1, 1)
