"""Passkeys on the pages of owners and operators, by an authenticator in software: what is taken and what is not."""

import hashlib
import json
import random
import re
from base64 import b64encode
from collections.abc import Iterator
from html import unescape
from urllib.parse import urlsplit

import httpx2
import pytest

from payres.accounts import passkeys
from payres.accounts.passkeys import PASSKEYS
from payres.accounts.password_links import make_link
from payres.accounts.second_factors import ask_removal
from payres.accounts.store.owners import OF_OWNERS, owner_at
from payres.accounts.store.passkeys import passkeys_of
from payres.accounts.store.second_factors import REMOVAL_DELAY
from payres.html.html import read_template
from tests.accounts.authenticator import UP, Authenticator
from tests.accounts.test_factor_pages import send_code
from tests.accounts.test_passkeys import mutated
from tests.helpers import TIMEOUT, Json
from tests.instance import Instance, run_instance
from tests.operator.pages.browser import Browser, words_of
from tests.people.browser import PASSWORD
from tests.people.test_sign_in import sign_in

OWNERS, OPERATORS = "/account/security/passkeys", "/admin/security/passkeys"
MUTATIONS = 40


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with run_instance(tmp_path_factory.mktemp("passkeys") / "payres.db", base_url="http://localhost:0") as instance:
        yield instance


@pytest.fixture
def http(server: Instance) -> Iterator[httpx2.Client]:
    """A browser."""
    with opened(server) as client:
        yield client


def opened(server: Instance) -> httpx2.Client:
    return httpx2.Client(base_url=server.base_url, timeout=TIMEOUT, headers={"Accept": "text/html"})


def asked(page: httpx2.Response) -> str:
    """What the form for a passkey asks the authenticator."""
    [options] = re.findall(r'data-ask="([^"]*)"', page.text)
    return unescape(options)


def fields(page: httpx2.Response) -> dict[str, str]:
    """What is hidden in the form for a passkey."""
    form = page.text.partition('name="passkey"')[2].partition("</form>")[0]
    found = re.findall(r'<input type="hidden" name="([\w.]+)" value="([^"]*)">', form)
    return {name: unescape(value) for name, value in found}


def csrf_of(page: httpx2.Response) -> str:
    """The token of the page's own forms."""
    found: str = re.findall(r'name="csrf" value="([^"]+)"', page.text.partition("<main")[2])[0]
    return found


def send(http: httpx2.Client, page: httpx2.Response, answer: object, path: str = "", **more: str) -> httpx2.Response:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return http.post(path or urlsplit(str(page.url)).path, data=fields(page) | {"answer": text} | more)


def add(http: httpx2.Client, device: Authenticator, path: str = OWNERS, name: str = "Pixel 9") -> httpx2.Response:
    """Adds a passkey in a browser that is signed in."""
    page = http.get(f"{path}/new")
    if "data-ask" not in page.text:
        csrf = csrf_of(page)
        page = http.post(f"{path}/new", data={"csrf": csrf, "choice": "prove", "password": PASSWORD})
    return send(http, page, device.register(asked(page)), name=name)


def owner(server: Instance, http: httpx2.Client, wallet: str) -> Authenticator:
    """The authenticator of a new wallet's owner, who is signed in."""
    server.create_wallet(wallet, password=PASSWORD)
    assert sign_in(http, wallet).status_code == 303
    device = Authenticator(server.base_url)
    added = words_of(add(http, device))
    assert ("Ten new recovery codes" in added, "The old ones" in added) == (True, False)
    return device


def by_passkey(
    http: httpx2.Client, device: Authenticator, path: str = "/account", **changed: object
) -> httpx2.Response:
    page = http.get(path)
    assert page.status_code == 401
    return send(http, page, device.sign(asked(page), **changed), path)  # type: ignore[arg-type]


def test_owner_signs_in_by_passkey_alone_and_gets_the_page_that_was_asked_for(server: Instance) -> None:
    with opened(server) as http, opened(server) as other:
        device = owner(server, http, "ann")
        path = "/settings/receive?x=%C3%A4"
        answer = by_passkey(other, device, path)
        assert (answer.status_code, answer.headers["location"]) == (303, path)
        assert [name for name in other.cookies if "known" in name], "who is inside makes the browser known"
        assert "Add a passkey" in other.get(f"{OWNERS}/new").text, "it was both factors, just now"
        server.clock.advance(301)
        assert "This needs your second step again" in words_of(other.get(f"{OWNERS}/new"))


def test_password_of_an_owner_with_a_passkey_signs_in_with_it_as_the_second_step(server: Instance) -> None:
    with opened(server) as http, opened(server) as other:
        device = owner(server, http, "bea")
        page = sign_in(other, "bea")
        assert page.status_code == 401
        assert "payres_session" not in other.cookies
        answer = send(other, page, device.sign(asked(page)), "/account")
        assert (answer.status_code, answer.headers["location"]) == (303, "/account")


def test_first_passkey_forgets_other_browsers_and_ends_their_sessions(server: Instance) -> None:
    with opened(server) as http, opened(server) as other:
        server.create_wallet("sole", password=PASSWORD)
        for one in (http, other):
            assert sign_in(one, "sole").status_code == 303
        codes = add(http, Authenticator(server.base_url))
        assert "Ten new recovery codes" in words_of(codes)
        assert f'method="get" action="{OWNERS}"' in codes.text, "they lead back to the passkeys"
        assert http.get("/account").status_code == 200
        assert other.get("/account").status_code == 401
        page = sign_in(other, "sole")
        assert (page.status_code, other.get("/account").status_code) == (401, 401), "the password alone is not enough"
        [recovery, *_] = re.findall(r"<li>([a-z2-7-]{19})</li>", codes.text)
        assert send_code(other, page, recovery).status_code == 303
        assert add(http, Authenticator(server.base_url)).status_code == 303
        assert other.get("/account").status_code == 200, "a second one ends nothing"


REFUSED: dict[str, Json] = {
    "another port": {"origin": "http://localhost:1"},
    "a frame": {"crossOrigin": True},
    "not verified": {"flags": UP},
}


def test_answer_of_another_browser_an_old_one_and_a_used_one_are_refused(server: Instance) -> None:
    with opened(server) as http, opened(server) as victim, opened(server) as attacker:
        device = owner(server, http, "dot")
        page, theirs = victim.get("/account"), attacker.get("/account")
        signed = device.sign(asked(page))
        assert words_of(send(attacker, theirs, signed)).count("open for too long") == 1
        server.clock.advance(11 * 60)
        assert "open for too long" in words_of(send(victim, page, signed))
        page = victim.get("/account")
        signed = device.sign(asked(page))
        assert send(victim, page, signed).status_code == 303
        assert "open for too long" in words_of(send(victim, page, signed)), "also in the same browser"


def test_copy_is_refused_and_so_is_the_original_while_the_password_signs_in(server: Instance) -> None:
    with opened(server) as http, opened(server) as other:
        device = owner(server, http, "eli")
        assert by_passkey(other, device).status_code == 303
        other.cookies.delete("payres_session")
        device.counter = 0
        for count in (0, 7):
            device.counter = count
            answer = by_passkey(other, device)
            assert (answer.status_code, "may have been copied" in words_of(answer)) == (400, True)
        assert sign_in(other, "eli").status_code == 303
        assert "it may have been copied" in words_of(http.get(OWNERS))
        audited = "SELECT count(*) FROM audit WHERE action = 'wallet.passkey_suspect' AND object = 'eli'"
        assert server.read(lambda work: work.execute(audited).fetchone()) == (1,), "noticed once"


def test_passkey_is_named_and_removed_and_then_signs_nobody_in(server: Instance, http: httpx2.Client) -> None:
    with opened(server) as own:
        device = owner(server, own, "fay")
        page = own.get(OWNERS)
        assert "Pixel 9 Added today, " in words_of(page)
        [path] = re.findall(rf'href="({OWNERS}/[0-9a-f-]{{36}})"', page.text)
        csrf = csrf_of(own.get(path))
        for name, status in (("", 400), ("<b>Mine", 303)):
            answer = own.post(path, data={"csrf": csrf, "choice": "rename", "was.name": "Pixel 9", "name": name})
            assert answer.status_code == status
        assert "&lt;b&gt;Mine" in own.get(OWNERS).text
        with opened(server) as other:
            owner(server, other, "fay-other")
            assert other.get(path).status_code == 404
        assert own.post(path, data={"csrf": csrf, "choice": "remove"}).status_code == 303
        assert "There is none yet" in words_of(own.get(OWNERS))
        recovery = own.get("/account/security/recovery-codes")
        assert "10" not in words_of(recovery), "they go with the last factor"
        audited = "SELECT action, actor FROM audit WHERE object = 'fay' AND action LIKE '%passkey%' ORDER BY id"
        assert server.read(lambda work: work.execute(audited).fetchall()) == [
            ("wallet.passkey_added", "owner:fay"),
            ("wallet.rename_passkey", "owner:fay"),
            ("wallet.passkey_removed", "owner:fay"),
        ]
    answer = by_passkey(http, device)
    assert (answer.status_code, "not known here any more" in words_of(answer)) == (400, True)
    assert sign_in(http, "fay").status_code == 303


def test_first_passkey_needs_the_password_and_a_device_has_one(server: Instance, http: httpx2.Client) -> None:
    server.create_wallet("gus", password=PASSWORD)
    assert sign_in(http, "gus").status_code == 303
    page = http.get(f"{OWNERS}/new")
    assert "data-ask" not in page.text
    csrf = csrf_of(page)
    wrong = http.post(f"{OWNERS}/new", data={"csrf": csrf, "choice": "prove", "password": "wrong"})
    assert (wrong.status_code, "data-ask" in wrong.text) == (401, False)
    unproved = {"csrf": csrf, "choice": "add", "name": "Planted", "answer": "{}"}
    refused = http.post(f"{OWNERS}/new", data=unproved)
    assert (refused.status_code, "data-ask" in refused.text) == (400, False)
    device = Authenticator(server.base_url)
    assert add(http, device).status_code == 200
    answer = add(http, device, name="Again")
    assert (answer.status_code, "has a passkey here already" in words_of(answer)) == (400, True)


def test_page_that_needs_a_fresh_step_takes_a_passkey_for_itself_alone(server: Instance) -> None:
    with opened(server) as http, opened(server) as other:
        device, stranger = owner(server, http, "hal"), owner(server, other, "hal-other")
        server.clock.advance(301)
        page = http.get("/settings/password")
        elsewhere = http.get(f"{OWNERS}/new")
        answers: tuple[tuple[object, str], ...] = (
            (device.sign(asked(elsewhere)), "open for too long"),
            (stranger.sign(asked(page)), "not known here any more"),
            ("", "it runs no scripts here"),
        )
        for wrong, says in answers:
            refused = send(http, page, wrong)
            assert (refused.status_code, says in words_of(refused)) == (401, True)
            assert "This needs your second step again" in words_of(http.get("/settings/password"))
        answer = send(http, page, device.sign(asked(page)))
        assert (answer.status_code, answer.headers["location"]) == (303, "/settings/password")
        assert "Password that you have now" in words_of(http.get("/settings/password"))


def test_consent_takes_the_passkey_of_the_wallets_owner_alone(server: Instance, http: httpx2.Client) -> None:
    with opened(server) as own:
        device = owner(server, own, "ivy")
    with opened(server) as own:
        stranger = owner(server, own, "ivy-other")
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": server.wallet("ivy")}
    asks = server.new_client("ivy-shop").request_grant(item).json()
    path = urlsplit(asks["interact"]["redirect"]).path
    page = http.get(path)
    assert "location.reload" in page.text
    answer = send(http, page, stranger.sign(asked(page)), path)
    assert (answer.status_code, "not known here any more" in words_of(answer)) == (400, True)
    assert "payres_session" not in http.cookies
    answer = send(http, page, device.sign(asked(page)), path)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    assert 'value="deny"' in http.get(path).text


def test_factors_that_are_to_be_removed_by_now_sign_nobody_in(server: Instance, http: httpx2.Client) -> None:
    with opened(server) as own:
        device = owner(server, own, "jon")
    server.write(lambda work: ask_removal(work, OF_OWNERS, owner_at(work, "jon")))  # type: ignore[arg-type]
    server.clock.advance(REMOVAL_DELAY // 1_000_000)
    assert "not known here any more" in words_of(by_passkey(http, device))
    assert sign_in(http, "jon").status_code == 303
    assert not server.read(lambda work: passkeys_of(work, OF_OWNERS, owner_at(work, "jon").id))  # type: ignore[union-attr]


def test_link_for_a_password_lists_passkeys_and_does_not_sign_in_past_them(server: Instance) -> None:
    with opened(server) as http, opened(server) as other:
        owner(server, http, "kim")
        secret, _ = server.write(lambda work: make_link(work, OF_OWNERS, owner_at(work, "kim").id))  # type: ignore[union-attr]
        page = other.get(f"/account/reset/{secret}")
        assert "These passkeys sign in too." in words_of(page)
        assert "Pixel 9. Added today, " in words_of(page)
        csrf = csrf_of(page)
        new = {"csrf": csrf, "password": "another horse", "again": "another horse"}
        assert other.post(f"/account/reset/{secret}", data=new).headers["location"] == "/account"
        answer = other.get("/account")
        assert (answer.status_code, "payres_session" in other.cookies) == (401, False)
        assert "data-ask" in answer.text


def test_operator_signs_in_by_passkey_and_money_asks_for_it_again(server: Instance) -> None:
    with Browser(server) as browser, opened(server) as http:
        browser.follow_link("ann")
        device = Authenticator(server.base_url)
        assert "Ten new recovery codes" in words_of(add(browser.http, device, OPERATORS))
        answer = by_passkey(http, device, "/admin/wallets")
        assert (answer.status_code, answer.headers["location"]) == (303, "/admin/wallets")
        server.clock.advance(301)
        page = http.get("/admin/wallets/alice/deposit")
        csrf = csrf_of(page)
        [once] = re.findall(r'name="once" value="([^"]+)"', page.text)
        form = {"csrf": csrf, "once": once, "choice": "deposit", "amount": "1.00"}
        page = http.post("/admin/wallets/alice/deposit", data=form)
        assert "This needs your second step again" in words_of(page)
        page = send(http, page, device.sign(asked(page)), "/admin/wallets/alice/deposit")
        assert "1.00" in words_of(page)
        assert 'name="password"' in page.text
        assert 'name="second_step"' not in page.text, "it was just given"


def test_owner_and_operator_of_one_device_keep_a_passkey_each(server: Instance) -> None:
    with Browser(server) as browser, opened(server) as http:
        browser.follow_link("leo")
        own, operators = Authenticator(server.base_url), Authenticator(server.base_url)
        add(browser.http, operators, OPERATORS)
        server.create_wallet("leo", password=PASSWORD)
        sign_in(http, "leo")
        add(http, own)
        assert own.user_handle != operators.user_handle
        with opened(server) as other:
            assert "not known here any more" in words_of(by_passkey(other, operators))
            assert "not known here any more" in words_of(by_passkey(other, own, "/admin"))


@pytest.mark.parametrize("path", ["/account", "/admin"])
def test_browser_that_came_by_another_name_is_offered_none(server: Instance, path: str) -> None:
    elsewhere = server.base_url.replace("localhost", "127.0.0.1")
    with httpx2.Client(base_url=elsewhere, timeout=TIMEOUT, headers={"Accept": "text/html"}) as http:
        page = http.get(path)
        assert (page.status_code, "data-ask" in page.text, "<script" in page.text) == (401, False, False)
        assert "script-src" not in page.headers["content-security-policy"]


PLAIN = (
    "default-src 'none'; style-src 'self'; img-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)


def test_pages_with_the_form_and_no_others_may_run_its_script_alone(server: Instance, http: httpx2.Client) -> None:
    with opened(server) as own:
        owner(server, own, "mia")
        [accepted] = re.findall(r'data-accepted="([^"]*)"', own.get(OWNERS).text)
        told = json.loads(unescape(accepted))
        assert (told["rpId"], len(told["allAcceptedCredentialIds"])) == ("localhost", 1), "what devices keep"
        pages = [(http, "/account"), (http, "/admin"), (own, OWNERS), (own, f"{OWNERS}/new")]
        server.clock.advance(301)
        pages.append((own, "/settings/password"))
        script = read_template(PASSKEYS.script)
        digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
        for browser, path in pages:
            page = browser.get(path)
            scripts = re.findall(r"<script>(.*?)</script>", page.text, re.S)
            assert [one.strip() for one in scripts] == [script.strip()], path
            [source] = re.findall(r"; script-src 'sha256-([^']+)'", page.headers["content-security-policy"])
            given = b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
            assert source == given, path
            allowed = f"; script-src 'sha256-{given}'; require-trusted-types-for 'script'; trusted-types 'none'"
            assert page.headers["content-security-policy"] == PLAIN + allowed, path
        for browser, path in ((own, "/account"), (own, "/settings"), (http, "/"), (http, "/alice")):
            page = browser.get(path)
            assert (page.headers["content-security-policy"], "<script" in page.text) == (PLAIN, False), path
        assert len(script) < 960, digest


def test_mutated_forms_are_answered_with_a_page_and_sign_nobody_in(server: Instance, http: httpx2.Client) -> None:
    with opened(server) as own:
        device = owner(server, own, "ned")
    messages = (passkeys.NO_ANSWER, passkeys.REFUSED, passkeys.TOO_LATE, passkeys.UNKNOWN, passkeys.SUSPECT)
    chance, statuses = random.Random(2), set[int]()
    for _ in range(MUTATIONS):
        page = http.get("/account")
        answer = device.sign(asked(page))
        wrong = answer | {"response": answer["response"] | {"signature": answer["response"]["signature"][::-1]}}
        sent = send(http, page, mutated(wrong, chance))
        statuses.add(sent.status_code)
        assert "payres_session" not in http.cookies
        assert any(unescape(one) in words_of(sent) for one in messages)
    assert statuses == {400}
