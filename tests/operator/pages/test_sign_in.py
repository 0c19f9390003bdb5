import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from payres.accounts.limits import MAX_WRONG_PASSWORDS, MAX_WRONG_PASSWORDS_PER_WALLET
from payres.accounts.sessions import find_session
from payres.core.protocol.identifiers import hash_secret
from payres.operator.declared.declarations import declared
from payres.operator.pages.operations import OperationPage
from payres.operator.pages.serving import admin_pages
from payres.operator.store.operators import OF_OPERATORS
from tests.helpers import sign_in_token
from tests.instance import Instance, run_instance
from tests.operator.pages.browser import PASSWORD, Browser, hidden_fields, words_of


def rows(payres: Instance, sql: str) -> list[tuple[object, ...]]:
    return payres.read(lambda work: work.execute(sql).fetchall())


@contextmanager
def later(payres: Instance, seconds: int) -> Iterator[None]:
    """Moves the clock for a while: other tests are signed in too."""
    payres.clock.advance(seconds)
    yield
    payres.clock.advance(-seconds)


def test_link_sets_a_password_once_and_signs_in(payres: Instance, browser: Browser) -> None:
    path = browser.new_link("Ben")
    assert "Set a password With it and the name Ben" in words_of(browser.get(path))
    assert browser.get(path).status_code == 200, "looking does not use it up"

    answer = browser.send(path, password=PASSWORD, again=PASSWORD)

    assert (answer.status_code, answer.headers["location"]) == (303, "/admin")
    assert "Payments can be taken" in browser.words("/admin")
    [second, first, *_] = browser.rows("/admin/audit-log")
    assert (second["Who"], second["Did what"], second["To what"]) == ("page:Ben", "admin.set_password", "Ben")
    assert (first["Did what"], first["To what"], first["Details"]) == ("admin.link", "Ben", "role full")
    for again in (browser.get(path), browser.http.post(path, data={"password": "another one", "again": "another one"})):
        assert again.status_code == 404
        assert "This link was used or has expired" in words_of(again)
    with Browser(payres) as other:
        assert other.sign_in("Ben", "another one").status_code == 401
        assert other.sign_in("Ben").status_code == 303


def test_secrets_are_stored_hashed(payres: Instance, browser: Browser) -> None:
    path = browser.new_link("Hal")
    links = "SELECT link_hash FROM password_link WHERE operator_id = (SELECT id FROM operator WHERE name = 'Hal')"
    assert rows(payres, links) == [(hash_secret(path.rpartition("/")[2]),)]
    browser.send(path, password=PASSWORD, again=PASSWORD)
    assert browser.session is not None
    [(known,)] = rows(payres, "SELECT id_hash FROM known_browser WHERE operator_id = (SELECT max(id) FROM operator)")
    assert known in {hash_secret(value) for name, value in browser.http.cookies.items() if "known" in name}
    assert (hash_secret(browser.session),) in rows(payres, "SELECT id_hash FROM session")
    [(stored,)] = rows(payres, "SELECT password_hash FROM operator WHERE name = 'Hal'")
    assert str(stored).startswith("$argon2id$")
    assert rows(payres, links) == []


@pytest.mark.parametrize(
    ("form", "problem", "counted"),
    [
        ({"password": "short", "again": "short"}, "A password has 8 to 1024 characters", 1),
        ({"password": PASSWORD, "again": PASSWORD + "s"}, "The two passwords are not the same", 0),
        ({"password": PASSWORD, "again": PASSWORD + "s", "csrf": "0"}, "The two passwords are not the same", 0),
        ({"password": "", "again": ""}, "A password has 8 to 1024 characters", 1),
    ],
)
def test_password_that_cannot_be_is_said_and_the_link_stays(
    payres: Instance, browser: Browser, form: dict[str, str], problem: str, counted: int
) -> None:
    def errors() -> int:
        found = re.findall(r'code="invalid_request"\} (\d+)', httpx2.get(f"{payres.base_url}/metrics").text)
        return int(found[0]) if found else 0

    path, before = browser.new_link("Typo"), errors()
    answer = browser.send(path, **form)
    assert answer.status_code == 400
    assert problem in words_of(answer)
    assert browser.get(path).status_code == 200
    assert errors() == before + counted


def test_new_link_ends_the_password_and_the_sessions(payres: Instance, browser: Browser) -> None:
    browser.follow_link("Eve")
    browser.new_link("Eve", role="reads")

    assert browser.get("/admin").status_code == 401
    assert browser.sign_in("Eve").status_code == 401


def test_no_page_is_shown_without_a_session(browser: Browser) -> None:
    for path in ("/admin", "/admin/", "/admin/wallets", "/admin/wallets/alice", "/admin/settings?format=csv"):
        answer = browser.get(path)
        assert answer.status_code == 401
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert words_of(answer).startswith("Sign in These pages are for the operators")


def test_sign_in_leads_back_to_the_page_that_was_asked_for(browser: Browser, ann: Browser) -> None:
    answer = browser.sign_in("ann", path="/admin/wallets/alice")

    assert (answer.status_code, answer.headers["location"]) == (303, "/admin/wallets/alice")
    assert words_of(browser.get("/admin/wallets/alice")).startswith("Alice")


def test_cookie_is_kept_from_scripts_and_other_sites(ann: Browser, browser: Browser) -> None:
    cookies = [cookie.split("; ") for cookie in browser.sign_in("ann").headers.get_list("set-cookie")]
    assert [value.partition("=")[0].rstrip("0123456789") for value, *_ in cookies] == [
        "payres_admin",
        "payres_admin_known_",
    ]
    assert [sorted(attributes) for _, *attributes in cookies] == [
        ["HttpOnly", f"Max-Age={seconds}", "Path=/", "SameSite=strict"] for seconds in (43200, 365 * 86400)
    ]


def test_link_lasts_for_15_minutes_and_a_session_for_12_hours(payres: Instance, browser: Browser) -> None:
    path = browser.new_link("Late")
    browser.follow_link("Sue")
    for seconds, shown in ((15 * 60 - 60, (200, 200)), (15 * 60, (404, 200)), (12 * 3600 - 60, (404, 200))):
        with later(payres, seconds):
            assert (browser.get(path).status_code, browser.get("/admin").status_code) == shown
    with later(payres, 12 * 3600):
        assert browser.get("/admin").status_code == 401


def test_sign_out_ends_the_session(payres: Instance, browser: Browser) -> None:
    browser.follow_link("Out")
    session = browser.session
    answer = browser.send("/admin/wallets", choice="sign-out")
    assert (answer.status_code, answer.headers["location"]) == (303, "/admin")
    assert browser.session is None
    assert payres.read(lambda work: find_session(work, OF_OPERATORS, session or "")) is None


def test_guesses_are_bounded_for_names_that_exist_and_for_others_alike(payres: Instance, browser: Browser) -> None:
    browser.new_link("Guessed")
    for name in ("Guessed", "Nobody"):
        statuses = [browser.sign_in(name, "wrong").status_code for _ in range(MAX_WRONG_PASSWORDS + 1)]
        assert statuses == [401] * MAX_WRONG_PASSWORDS + [429]
    assert "5 wrong passwords for this operator. Try again in 15 minutes" in words_of(
        browser.sign_in("Guessed", "wrong")
    )
    browser.follow_link("Guessed")  # a new link clears the counts
    assert browser.sign_in("Guessed").status_code == 303


def test_guesses_of_others_do_not_lock_an_operator_out_of_a_browser_that_is_known(tmp_path: Path) -> None:
    network = run_instance(tmp_path / "payres.db", admin_hosts="192.0.2.0/24")
    with network as payres, Browser(payres, "192.0.2.200") as gus:
        gus.follow_link("Gus")
        for number in range(MAX_WRONG_PASSWORDS_PER_WALLET):
            with Browser(payres, f"192.0.2.{number}") as visitor:
                assert visitor.sign_in("Gus", "wrong").status_code == 401
        with Browser(payres, "192.0.2.201") as new:
            assert new.sign_in("Gus").status_code == 429
        payres.create_wallet("gus")
        path = "/admin/wallets/gus/deposit"
        assert gus.send(path, choice="deposit", amount="1.00", password=PASSWORD).status_code == 303
        gus.send("/admin", choice="sign-out")
        assert gus.sign_in("Gus").status_code == 303
        assert len(rows(payres, "SELECT * FROM known_browser")) == 1
        gus.new_link("Gus")
        assert rows(payres, "SELECT * FROM known_browser") == []


def test_forms_are_of_this_browser_and_of_this_site(payres: Instance, browser: Browser) -> None:
    """The rules of tokens and sites are those of consent pages, whose tests have each case."""
    browser.follow_link("Ron")
    link = browser.new_link("Ron's guest")
    sign_in, new = {"choice": "sign-in", "name": "Ron", "password": PASSWORD}, {"password": PASSWORD, "again": PASSWORD}
    with Browser(payres) as other:
        for csrf in (dict[str, str](), {"csrf": sign_in_token(browser.http, "/admin")}):
            for answer in (other.http.post("/admin", data=sign_in | csrf), other.http.post(link, data=new | csrf)):
                assert (answer.status_code, other.session) == (403, None)
                assert "This page is too old" in words_of(answer)
        right = hidden_fields(other.get("/admin")) | sign_in
        elsewhere = {"Sec-Fetch-Site": "cross-site"}
        assert other.http.post("/admin", data=right, headers=elsewhere).status_code == 403
        assert other.http.post("/admin", data=right).status_code == 303
    out = {"choice": "sign-out"}
    for form, headers in (({}, {}), ({"csrf": "0" * 64}, {}), (hidden_fields(browser.get("/admin")), elsewhere)):
        assert browser.http.post("/admin", data=out | form, headers=headers).status_code == 403
    assert browser.get("/admin").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        *({"Host": "pay.example.com"}, {"X-Forwarded-For": "192.0.2.1"}, {"X-Forwarded-For": "127.0.0.1"}),
        {"Forwarded": "for=127.0.0.1"},
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "HEAD"])
def test_whoever_is_not_let_in_finds_nothing(ann: Browser, headers: dict[str, str], method: str) -> None:
    """Not even with a session: at an address that is there for others as at one that never is."""
    nothing = ann.http.request(method, "/admin/nothing", headers=headers)
    pages = ("/admin", "/admin/", "/admin/wallets", "/admin/link/x", "/%61dmin")
    for path in (*pages, "/admin/v1/api-keys", "/admin/v1/openapi.json", "/%61dmin/v1/api-keys", "/admin/v1/api-keys/"):
        answer = ann.http.request(method, path, headers=headers)
        assert (answer.status_code, answer.content) == (404, nothing.content)


def test_pages_cannot_be_framed_kept_or_read_by_other_origins(ann: Browser) -> None:
    for path in ("/admin", "/admin/wallets", "/admin/wallets?format=csv"):
        answer = ann.http.get(path, headers={"Origin": "https://evil.example"})
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert not [name for name in answer.headers if name.startswith("access-control")]
    policy = ann.get("/admin").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'; ")
    assert "frame-ancestors 'none'" in policy


def test_cookie_without_its_secret_lets_nobody_in(payres: Instance) -> None:
    for cookie in ("", "x", "A" * 43, "' OR 1=1 --"):
        answer = httpx2.get(payres.base_url + "/admin", headers={"Cookie": f"payres_admin={cookie}"})
        assert answer.status_code == 401


def test_page_of_an_operator_lists_the_browsers_signed_in(payres: Instance, browser: Browser) -> None:
    with Browser(payres) as other:
        other.http.headers["User-Agent"] = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
        other.follow_link("Seen")
        browser.follow_link("Looks", role="reads")
        assert re.search(
            r"Signed in Browser Since From Firefox on Linux Today [\d:]{5}", browser.words("/admin/operators/Seen")
        )
        other.send("/admin", choice="sign-out")
        assert other.sign_in("Seen", "wrong").status_code == 401
        words = browser.words("/admin/operators/Seen")
        assert "Signed in In no browser" in words
        at = r"Today [\d:]{5} Firefox on Linux"
        assert re.search(rf"Last sign-ins With Time Browser From Wrong password {at} Link {at}", words), words


TYPED = {
    "name": "harbour",
    "ilp_address": "test.harbour",
    "asset_code": "USD",
    "asset_scale": "2",
    "url": "https://harbour.example/ilp",
    "outgoing_token": "whisper-it",
    "incoming_token": "hush-it-up",
    "credit_limit": "25.00",
    "choice": "add",
}


@pytest.mark.parametrize("looked_over", [False, True])
def test_what_was_typed_is_kept_through_a_sign_in_but_for_secrets(payres: Instance, looked_over: bool) -> None:
    number = int(looked_over)
    typed = TYPED | {
        one: f"{TYPED[one]}-{number}" for one in ("name", "ilp_address", "outgoing_token", "incoming_token")
    }
    path = "/admin/new-peer"
    with Browser(payres) as browser:
        browser.follow_link("kim")
        fields = hidden_fields(browser.get(path)) | typed
        if looked_over:
            fields = hidden_fields(browser.http.post(path, data=fields)) | typed | {"password": PASSWORD}
        browser.http.cookies.delete("payres_admin")
        asked = browser.http.post(path, data=fields)
        assert asked.status_code == 401
        assert "What you typed is kept. You see it again before anything is done." in words_of(asked)
        kept = dict(re.findall(r'<input type="hidden" name="([\w.]+)" value="([^"]*)">', asked.text))
        for secret in (typed["outgoing_token"], typed["incoming_token"], PASSWORD):
            assert secret not in asked.text
        entered = browser.http.post(path, data=kept | {"choice": "sign-in", "name": "kim", "password": PASSWORD})
        assert entered.status_code == 200
        for name in ("name", "ilp_address", "url", "credit_limit"):
            assert f'value="{typed[name]}"' in entered.text, name
        assert "Nothing is done yet." in words_of(entered), "it is the form, and not what it does"
        assert "whisper" not in entered.text
        assert rows(payres, f"SELECT count(*) FROM peer WHERE name = 'harbour-{number}'") == [(0,)]
        again = browser.http.post(path, data=hidden_fields(entered) | typed)
        assert "harbour" in words_of(again)
        done = browser.http.post(path, data=hidden_fields(again) | typed | {"password": PASSWORD})
        assert done.status_code == 303, words_of(done)


KEY = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"
PRIVATE = json.dumps(
    {"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "d": KEY}
)
UNSEEN = {"secret": "whisper-it"}  # by kind of field; what is typed in the others has a private key
FILLED_IN = {path: page for path, page in admin_pages().items() if isinstance(page, OperationPage) and len(page.fields)}


def test_every_input_that_is_a_secret_by_its_name_is_of_that_kind() -> None:
    inputs = [one for operation in declared() for one in operation.inputs.values()]
    named = [one for one in inputs if re.search("token|secret|password|passphrase|api_key", one.name)]
    assert {one.kind_of_field for one in [*named, *(one for one in inputs if one.is_secret)]} == {"secret"}


@pytest.mark.parametrize("path", FILLED_IN)
def test_no_field_of_a_form_has_a_secret_or_a_private_key_once_more(payres: Instance, path: str) -> None:
    page = FILLED_IN[path]
    typed = {one.name: UNSEEN.get(one.kind_of_field, PRIVATE) for one in page.fields if not one.is_mark}
    url = re.sub("{.*?}", "1", path)
    with Browser(payres) as browser:
        for choice in page.form.buttons:
            asked = browser.http.post(url, data=typed | {"choice": choice})
            assert (asked.status_code, "of.choice" in asked.text) == (401, True)
            assert not [text for text in (KEY, *UNSEEN.values()) if text in asked.text]
    assert not {text for one in page.fields.shown(typed) for text in (KEY, *UNSEEN.values()) if text in one.value}


def test_private_key_is_refused_and_sent_back_by_no_page(payres: Instance) -> None:
    payres.create_wallet("pasted-private")
    path = "/admin/wallets/pasted-private/new-key"
    with Browser(payres) as browser:
        browser.follow_link("kay")
        refused = browser.send(path, choice="add", jwk=PRIVATE, name="Phone")
        assert (refused.status_code, "has the private member" in words_of(refused)) == (400, True)
        fields = hidden_fields(browser.get(path)) | {"choice": "add", "jwk": PRIVATE, "name": "Phone"}
        browser.http.cookies.delete("payres_admin")
        asked = browser.http.post(path, data=fields)
        kept = dict(re.findall(r'<input type="hidden" name="([\w.]+)" value="([^"]*)">', asked.text))
        entered = browser.http.post(path, data=kept | {"choice": "sign-in", "name": "kay", "password": PASSWORD})
        for answer in (refused, entered):
            assert 'value="Phone"' in answer.text
        for answer in (refused, asked, entered):
            assert KEY not in answer.text
