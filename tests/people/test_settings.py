import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from html import unescape
from typing import Any

import pytest

from payres.accounts import owners
from payres.accounts.limits import MAX_WRONG_PASSWORDS
from payres.core.protocol.errors import WrongState
from payres.core.store.connections import connect_writer
from payres.core.store.wallets import require_wallet
from payres.html.concurrent_edits import save_unchanged
from payres.operator import wallets
from payres.people import settings, wallet_names
from payres.settings import settings_with
from tests.helpers import sign_in_token
from tests.instance import Instance
from tests.operator.pages.browser import words_of
from tests.people.browser import PASSWORD, OwnersBrowser, signed_in, signed_out
from tests.people.test_sign_in import sign_in
from tests.works import NOW, work_at

NEW = "battery staple"
GIVEN = {"current": PASSWORD, "password": NEW, "again": NEW}


@pytest.fixture
def dora(payres: Instance, request: pytest.FixtureRequest) -> Iterator[OwnersBrowser]:
    with signed_in(payres, f"dora-{abs(hash(request.node.nodeid))}") as owner:
        yield owner


def last_change(payres: Instance) -> tuple[str, str, str]:
    query = "SELECT actor, action, object FROM audit ORDER BY id DESC LIMIT 1"
    actor, action, subject = payres.read(lambda work: work.execute(query).fetchone())
    return actor, action, subject


def test_new_password_takes_the_old_one_and_signs_others_out(payres: Instance, dora: OwnersBrowser) -> None:
    session = dora.http.cookies["payres_session"]
    with signed_out(payres) as other:
        assert sign_in(other, dora.path).status_code == 303
        payres.clock.advance(400)  # so that the session is made longer meanwhile
        answer = dora.send("/settings/password", "change", GIVEN)
        assert (answer.status_code, answer.headers["location"]) == (303, "/account/security?done=password")
        assert dora.http.cookies["payres_session"] != session
        assert "Your password is changed. Every other browser is signed out." in dora.words(
            "/account/security?done=password"
        )
        assert other.get("/account").status_code == 401
        assert last_change(payres) == (f"owner:{dora.path}", "wallet.set_password", dora.path)
        assert sign_in(other, dora.path).status_code == 401
        assert sign_in(other, dora.path, NEW).status_code == 303


@pytest.mark.parametrize(
    ("fields", "status", "sentence"),
    [
        ({"current": "wrong"}, 401, "This is not the password of this wallet. Try again."),
        ({"current": ""}, 401, "This is not the password of this wallet. Try again."),
        ({"again": "battery staples"}, 400, "The two passwords are not the same. Type the new one twice."),
        ({"password": "short", "again": "short"}, 400, "A password has 8 to 1024 characters."),
    ],
)
def test_password_that_is_not_taken_says_why_at_its_field(
    dora: OwnersBrowser, fields: dict[str, str], status: int, sentence: str
) -> None:
    answer = dora.send("/settings/password", "change", GIVEN | fields)
    assert (answer.status_code, sentence in words_of(answer)) == (status, True)
    assert "<title>Error: change your password" in answer.text
    [field] = re.findall(r'id="(\w+)-error"', answer.text)
    assert field == next(iter(fields))
    assert dora.words("/account")


def test_who_has_a_session_cannot_guess_the_password_for_ever(
    dora: OwnersBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("payres.accounts.passwords.hash_password", None)  # nothing is hashed that will not be stored
    wrong = GIVEN | {"current": "wrong"}
    statuses = [dora.send("/settings/password", "change", wrong).status_code for _ in range(MAX_WRONG_PASSWORDS + 1)]
    assert statuses == [401] * MAX_WRONG_PASSWORDS + [429]
    assert dora.send("/settings/password", "change", GIVEN).status_code == 429


@pytest.mark.usefixtures("still")
def test_times_follow_the_zone_that_the_reader_chose(dora: OwnersBrowser) -> None:
    def shown() -> str:
        return str(re.findall(r"It is (\d\d:\d\d) on these pages now", dora.words("/settings"))[0])

    utc = shown()
    assert "As this server has it (UTC)" in dora.words("/settings")
    answer = dora.send("/settings", "zone", {"zone": "Asia/Kolkata"})  # five hours and a half ahead, all year
    assert answer.headers["location"] == "/settings?done=zone"
    hours, minutes = map(int, utc.split(":"))
    ahead = (hours * 60 + minutes + 330) % 1440
    assert shown() == f"{ahead // 60:02}:{ahead % 60:02}"
    assert 'value="Asia/Kolkata" selected' in dora.http.get("/settings").text
    dora.send("/settings", "zone", {"zone": ""})
    assert shown() == utc


@pytest.mark.usefixtures("still")
@pytest.mark.parametrize(
    "zone",
    ["../../etc/passwd", "Europe", "Mars/Base", "", 'x"; Path=/', "A" * 5000, "localtime", "\u202eEurope/Berlin"],
)
def test_zone_that_is_none_changes_nothing(payres: Instance, dora: OwnersBrowser, zone: str) -> None:
    before = dora.words("/settings")
    assert dora.send("/settings", "zone", {"zone": zone}).status_code == 303
    assert dora.words("/settings") == before
    if zone.isprintable() and '"' not in zone:
        assert dora.http.get("/settings", headers={"Cookie": f"payres_zone={zone}"}).status_code in {200, 401}


def test_language_that_the_reader_chose_is_kept(dora: OwnersBrowser) -> None:
    dora.http.headers["Accept-Language"] = "es-MX,de-CH;q=0.5"

    def shown() -> tuple[str, bool]:
        page = dora.http.get("/settings")
        return page.headers["content-language"], f'<option value="{language}" lang="{language}" selected>' in page.text

    for language in ("de", "en", "es"):
        answer = dora.send("/settings", "language", {"language": language})
        assert answer.headers["location"] == "/settings?done=language"
        assert "HttpOnly" in answer.headers["set-cookie"]
        assert shown() == (language, True)
        assert dora.http.get("/").headers["content-language"] == language, "on all pages of this browser"
        assert dora.http.get("/nobody").headers["content-language"] == language
    for language in ("", "fr", "de; Path=/", "x" * 5000):
        dora.send("/settings", "language", {"language": "de"})
        assert dora.send("/settings", "language", {"language": language}).status_code == 303
        assert shown() == ("es", False), "what the browser prefers"


@pytest.mark.parametrize("kept", ["fr", "", "DE", "de-CH", "de/../../x", "d" * 5000])
def test_cookie_of_no_language_counts_for_nothing(shared: Instance, kept: str) -> None:
    with signed_out(shared, Cookie=f"payres_language={kept}", **{"Accept-Language": "es"}) as http:
        assert http.get("/").headers["content-language"] == "es"


def test_site_gets_its_line_and_a_code_of_the_wallet_address(dora: OwnersBrowser) -> None:
    page = dora.http.get("/settings/receive").text
    line = f'<link rel="monetization" href="{dora.instance.base_url}/{dora.path}">'
    assert line in [unescape(text) for text in re.findall(r"<textarea[^>]*>([^<]*)</textarea>", page)]
    assert 'class="qr"' in page
    assert f"${dora.instance.base_url.partition('://')[2]}" not in page, "a payment pointer means https"


def link_of(payres: Instance, path: str) -> str:
    made = payres.write(lambda work: wallets.make_password_link(work, path))
    assert made.wallet_address == payres.wallet(path)
    return str(made.url).removeprefix(payres.base_url)


def test_link_sets_a_password_once_and_signs_in(payres: Instance) -> None:
    payres.create_wallet("forgot", name="Ford")
    path = link_of(payres, "forgot")
    with signed_out(payres) as http, signed_out(payres) as other:
        for _ in range(2):
            assert words_of(http.get(path)).startswith("Choose a password for Ford’s wallet")
        fields = {"csrf": sign_in_token(http, path), "choice": "set", "password": NEW, "again": NEW}
        answer = http.post(path, data=fields)
        assert (answer.status_code, answer.headers["location"]) == (303, "/account")
        assert "Ford’s wallet" in words_of(http.get("/account"))
        assert not [name for name in http.cookies if "known" in name], "the link was the operator's too"
        assert last_change(payres) == ("owner:forgot", "wallet.set_password", "forgot")
        for again in (http.get(path), http.post(path, data=fields), http.post(path)):
            assert again.status_code == 404
            assert words_of(again).startswith("This link has ended It works once, for an hour")
        assert sign_in(other, "forgot", NEW).status_code == 303


def test_link_ends_with_the_next_with_a_password_and_after_an_hour(payres: Instance) -> None:
    payres.create_wallet("links", password=PASSWORD)
    with signed_out(payres) as http:
        first, second = link_of(payres, "links"), link_of(payres, "links")
        assert (http.get(first).status_code, http.get(second).status_code) == (404, 200)
        assert sign_in(http, "links").status_code == 303, "the old password is good until then"
        payres.write(lambda work: owners.store_password(work, "links", "x"))
        assert http.get(second).status_code == 404
        third = link_of(payres, "links")
        payres.clock.advance(3599)
        assert http.get(third).status_code == 200
        payres.clock.advance(1)
        assert http.get(third).status_code == 404
        assert http.get("/account/reset/" + "x" * 43).status_code == 404


def test_link_is_stored_hashed_and_in_no_log(payres: Instance) -> None:
    payres.create_wallet("hashed")
    path = link_of(payres, "hashed")
    secret = path.rpartition("/")[2]
    with signed_out(payres) as http:
        http.get(path)
    assert any("/account/reset/..." in line for line in payres.requests)
    assert not [line for line in payres.requests if secret in line]
    stored = payres.read(lambda work: work.execute("SELECT * FROM password_link").fetchall())
    details = payres.read(lambda work: work.execute("SELECT * FROM audit").fetchall())
    assert secret not in f"{stored}{details}"


def test_form_of_a_link_is_of_this_browser_and_says_what_is_wrong(payres: Instance) -> None:
    payres.create_wallet("careful")
    path = link_of(payres, "careful")
    fields = {"choice": "set", "password": NEW, "again": NEW}
    with signed_out(payres) as http, signed_out(payres) as other:
        for csrf in ({}, {"csrf": sign_in_token(other, path)}):
            answer = http.post(path, data=fields | csrf)
            assert answer.status_code == 403
            assert "This page is too old" in words_of(answer)
        short = fields | {"csrf": sign_in_token(http, path), "password": "short", "again": "short"}
        answer = http.post(path, data=short)
        assert (answer.status_code, "A password has 8 to 1024 characters." in words_of(answer)) == (400, True)
        assert http.request("PUT", path).status_code == 405
        assert http.post(path, data=short | {"password": NEW, "again": NEW}).status_code == 303


NAMED = "/settings/receive"


def test_owner_gives_the_wallet_a_name_that_payers_see(payres: Instance, dora: OwnersBrowser) -> None:
    answer = dora.send(NAMED, "rename", {"name": " Dora & Söhne "})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{NAMED}?done=name")
    assert "Payers see this name from now on." in dora.words(f"{NAMED}?done=name")
    assert last_change(payres) == (f"owner:{dora.path}", "wallet.rename", dora.path)
    assert payres.client.get(payres.wallet(dora.path)).json()["publicName"] == "Dora & Söhne"
    with signed_out(payres) as http:
        made = payres.client.create_incoming_payment(payres.wallet(dora.path))
        page = words_of(http.get(f"/pay/{made['id'].rpartition('/')[2]}"))
    assert "Pay Dora &amp; Söhne" in page or "Pay Dora & Söhne" in page
    assert "Its owner chose the name." in page
    theirs = dora.send(NAMED, "rename", {"name": "Dora", "was.name": "Another"})
    assert (theirs.status_code, "This was changed meanwhile" in words_of(theirs)) == (409, True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "A name has 1 to 200 characters that can be seen."),
        ("\u202eevil", "A name has 1 to 200 characters that can be seen."),
        ("x" * 201, "A name has 1 to 200 characters that can be seen."),
        ("Alice", "Another wallet here is called so, or nearly so. Choose another name."),
        ("A L1CE", "Another wallet here is called so, or nearly so. Choose another name."),
        ("\u0410lic\u0435", "Another wallet here is called so, or nearly so. Choose another name."),
        ("b-o-b", "Another wallet here is called so, or nearly so. Choose another name."),
        ("127.0.0.1/bob", "This provider is called so, or nearly so. Choose another name."),
    ],
)
def test_name_that_is_not_taken_says_why_at_its_field(dora: OwnersBrowser, name: str, said: str) -> None:
    answer = dora.send(NAMED, "rename", {"name": name})
    assert (answer.status_code, said in words_of(answer)) == (400, True)
    assert re.findall(r'id="(\w+)-error"', answer.text) == ["name"]


@pytest.mark.parametrize("name", ["Example Bank", "EXAMP1E BANK", "\u0415xample-\u0412ank"])
def test_server_s_own_name_is_for_a_wallet_that_an_operator_names(name: str) -> None:
    with closing(connect_writer(":memory:")) as connection:
        work = work_at(connection, NOW, settings_with({"name": "Example Bank"}))
        wallet = wallets.open_wallet(work, "fees", "USD", 2)
        with pytest.raises(WrongState, match="like that of this server; choose another name"):
            wallet_names.choose(work, wallet, name)
        named = wallets.rename(work, "fees", name)
        wallet_names.choose(work, named, name)  # which it has
        wallet_names.choose(work, named, "Example Bakery")


def test_name_that_two_owners_choose_at_once_is_the_first_one_s(
    payres: Instance, dora: OwnersBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = asyncio.Barrier(2)

    async def saved_together(*given: Any) -> Any:
        await both.wait()
        return await save_unchanged(*given)

    monkeypatch.setattr(settings, "save_unchanged", saved_together)
    with signed_in(payres, "twin") as twin, ThreadPoolExecutor(2) as pool:
        sent = [pool.submit(one.send, NAMED, "rename", {"name": "Nur Eine"}) for one in (dora, twin)]
        answers = sorted((one.result() for one in sent), key=lambda answer: answer.status_code)
    assert [one.status_code for one in answers] == [303, 400]
    assert "Another wallet here is called so" in words_of(answers[1])
    named = [payres.read(partial(require_wallet, wallet=one)).public_name for one in (dora.path, "twin")]
    assert named.count("Nur Eine") == 1


def test_name_of_an_operator_is_another_s_until_it_is_given_up(payres: Instance, dora: OwnersBrowser) -> None:
    """Several wallets of one owner may have it; a path stays taken whatever its wallet is called."""
    terms: dict[str, Any] = {"asset_code": "USD", "scale": 2, "public_name": None, "password_hash": None}
    for path, owner in (("carl-1", None), ("carl-2", "carl-1")):
        payres.write(partial(wallets.create_wallet, path=path, owner=owner, **terms))
        payres.write(partial(wallets.rename, wallet=path, public_name="Café Central"))
    for path in ("carl-1", "carl-2"):
        assert dora.send(NAMED, "rename", {"name": "cafe central"}).status_code == 400
        payres.write(partial(wallets.rename, wallet=path, public_name=None))
    assert dora.send(NAMED, "rename", {"name": "cafe central"}).status_code == 303
    assert dora.send(NAMED, "rename", {"name": "Carl 1"}).status_code == 400
    assert dora.send(NAMED, "rename", {"name": "Café Central"}).status_code == 303


@pytest.mark.parametrize(
    ("path", "fields"),
    [(NAMED, {"choice": "rename", "name": ""}), ("/account/security/limit", {"choice": "set", "limit": "x"})],
)
def test_form_that_does_not_say_what_it_showed_is_answered(
    dora: OwnersBrowser, path: str, fields: dict[str, str]
) -> None:
    assert dora.http.post(path, data={"csrf": dora.csrf} | fields).status_code == 400
