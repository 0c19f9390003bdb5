"""The page of what guards a wallet: who is signed in, and that only the owner can sign a browser out."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

import httpx2
import pytest

from payres.accounts.browser_names import A_BROWSER, browser_name
from payres.accounts.limits import MAX_KEPT_SIGN_INS
from payres.accounts.sessions import csrf_token
from payres.accounts.store.owners import OF_OWNERS
from payres.accounts.store.passkeys import PASSKEY_TABLE, PasskeyRecord
from payres.accounts.store.sign_ins import NOWHERE, Seen, insert_sign_in, last_sign_ins
from payres.core.protocol.clock import DAY
from payres.core.protocol.identifiers import hash_secret
from payres.core.store.rows import number
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.operator import wallets
from payres.people.security import folded
from payres.people.sign_in import NOTICES, VIEWS
from tests.accounts.test_factor_pages import asks_for_code, send_code, turn_on
from tests.helpers import sign_in_token
from tests.instance import Instance
from tests.operator.pages.browser import words_of
from tests.people.browser import PASSWORD, OwnersBrowser, signed_in, signed_out
from tests.people.test_sign_in import sign_in
from tests.works import NOW

PAGE = "/account/security"
WEBKIT = "AppleWebKit/537.36 (KHTML, like Gecko)"
APPLE = "AppleWebKit/605.1.15 (KHTML, like Gecko)"
# Real headers, shortened where only a version stands.
AGENTS: Mapping[str, str] = {
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0": "Firefox on Linux",
    "Mozilla/5.0 (Android 14; Mobile; rv:128.0) Gecko/128.0 Firefox/128.0": "Firefox on Android",
    f"Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) {APPLE} FxiOS/128.0 Mobile/15E148 Safari/605.1.15": (
        "Firefox on iPhone"
    ),
    f"Mozilla/5.0 (Linux; Android 10; K) {WEBKIT} Chrome/126.0.0.0 Mobile Safari/537.36": "Chrome on Android",
    f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {WEBKIT} Chrome/126.0.0.0 Safari/537.36": "Chrome on Windows",
    f"Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) {WEBKIT} Chrome/126.0.0.0 Safari/537.36": "Chrome on ChromeOS",
    f"Mozilla/5.0 (iPad; CPU OS 17_5 like Mac OS X) {APPLE} CriOS/126.0.6478.54 Mobile/15E148 Safari/604.1": (
        "Chrome on iPad"
    ),
    f"Mozilla/5.0 (iPad; CPU OS 16_6 like Mac OS X) {APPLE} Version/16.6 Mobile/15E148 Safari/604.1": "Safari on iPad",
    f"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) {APPLE} Version/17.5 Safari/605.1.15": "Safari on Mac",
    f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {WEBKIT} Chrome/126.0.0.0 Safari/537.36 Edg/126.0.0.0": (
        "Edge on Windows"
    ),
    f"Mozilla/5.0 (X11; Linux x86_64) {WEBKIT} Chrome/124.0.0.0 Safari/537.36 OPR/110.0.0.0": "Opera on Linux",
    f"Mozilla/5.0 (Linux; Android 14; SM-S918B) {WEBKIT} SamsungBrowser/25.0 Chrome/121.0.0.0 Mobile Safari/537.36": (
        "Samsung Internet on Android"
    ),
    "curl/8.5.0": A_BROWSER,
    "Links (2.29; Linux 6.8 x86_64; GNU C 13.2; text)": f"{A_BROWSER} on Linux",
    "": A_BROWSER,
    "<script>\u202e{0}" * 9000: A_BROWSER,
}
FIREFOX, CHROME, SAFARI = (
    next(agent for agent, name in AGENTS.items() if name == wanted)
    for wanted in ("Firefox on Linux", "Chrome on Android", "Safari on iPad")
)


@pytest.mark.parametrize(("agent", "name"), AGENTS.items(), ids=range(len(AGENTS)))
def test_browser_is_named_as_people_call_it(agent: str, name: str) -> None:
    assert browser_name(agent) == name


@pytest.fixture
def owner(payres: Instance, request: pytest.FixtureRequest) -> Iterator[OwnersBrowser]:
    with signed_in(payres, f"guard-{abs(hash(request.node.nodeid))}") as found:
        yield found


@pytest.fixture
def others(payres: Instance, owner: OwnersBrowser) -> Iterator[Sequence[httpx2.Client]]:
    """Two more browsers that the owner has signed in with, the first before the second."""
    with ExitStack() as stack:
        found = []
        for agent, address in ((CHROME, "203.0.113.9"), (SAFARI, "2001:db8:1:2:3:4:5:6")):
            http = stack.enter_context(signed_out(payres, **{"User-Agent": agent}))
            assert sign_in(http, owner.path, address=address).status_code == 303
            found.append(http)
            payres.clock.advance(60)
        yield found


def digests(owner: OwnersBrowser) -> Mapping[str, str]:
    """What the page's forms call the other sessions, by the browser."""
    found = re.findall(
        r'name="session" value="(\w+)"><button [^>]* aria-label="Sign out ([^"]*)"', owner.http.get(PAGE).text
    )
    return {name: digest for digest, name in found}


def statuses(*browsers: httpx2.Client) -> list[int]:
    return [http.get("/account").status_code for http in browsers]


def last_audited(payres: Instance) -> object:
    query = "SELECT actor, action, object, details FROM audit ORDER BY id DESC LIMIT 1"
    return payres.read(lambda work: work.execute(query).fetchone())


@pytest.mark.usefixtures("still")
def test_page_lists_browsers_with_when_and_where_from(
    payres: Instance, owner: OwnersBrowser, others: Sequence[httpx2.Client]
) -> None:
    words = owner.words(PAGE)
    listed = words[words.index("Signed in") :]
    assert re.search(
        r"A browser this one Since today, (\d\d:\d\d)\. .*"
        r"Safari on iPad Since today, [\d:]{5}\. Last seen today, [\d:]{5}\. From 2001:db8:1:2::/64\. Sign out .*"
        r"Chrome on Android Since today, \1\. Last seen today, \1\. From 203\.0\.113\.9\. Sign out .*"
        r"Sign out the other 2",
        listed,
    ), listed
    page = owner.http.get(PAGE).text
    stored = payres.read(lambda work: work.execute("SELECT id_hash FROM session").fetchall())
    secrets = [http.cookies["payres_session"] for http in (owner.http, *others)]
    assert not [one for one in (*secrets, *(row[0].hex() for row in stored)) if one in page]
    payres.clock.advance(360)
    others[0].get("/account")
    assert len(set(re.findall(r"Last seen today, ([\d:]{5})", owner.words(PAGE)))) == 2, "the one that was used, later"


def test_one_browser_is_signed_out_and_the_others_are_not(
    payres: Instance, owner: OwnersBrowser, others: Sequence[httpx2.Client]
) -> None:
    digest = digests(owner)["Chrome on Android"]
    answer = owner.send(PAGE, "end", {"session": digest})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{PAGE}?done=ended")
    assert statuses(owner.http, *others) == [200, 401, 200]
    assert last_audited(payres) == (f"owner:{owner.path}", "wallet.sign_out", owner.path, '{"sessions":1}')
    words = owner.words(answer.headers["location"])
    assert "Signed out. What your apps may spend stays as it is." in words
    assert "Sign out the other one" in words
    assert [*digests(owner)] == ["Safari on iPad"]
    again = owner.send(PAGE, "end", {"session": digest})
    assert "It was signed out already." in owner.words(again.headers["location"])
    assert statuses(owner.http, *others) == [200, 401, 200], "a form that is late signs nobody else out"


def test_browsers_that_were_trusted_are_asked_for_the_second_step_again(payres: Instance, owner: OwnersBrowser) -> None:
    _, recovery = turn_on(owner)
    with signed_out(payres) as own, signed_out(payres) as lost:
        for http, code in zip((own, lost), recovery, strict=False):
            assert send_code(http, sign_in(http, owner.path), code, trust="30").status_code == 303
        assert sign_in(lost, owner.path).status_code == 303, "the password alone"
        csrf = f"{csrf_token(own.cookies['payres_session'])}.{owner.path}"
        assert own.post(PAGE, data={"csrf": csrf, "choice": "others"}).status_code == 303
        assert (lost.get("/account").status_code, asks_for_code(sign_in(lost, owner.path))) == (401, True)
        assert sign_in(own, owner.path).status_code == 303


def test_all_others_are_signed_out_at_once(
    payres: Instance, owner: OwnersBrowser, others: Sequence[httpx2.Client]
) -> None:
    assert owner.send(PAGE, "others").headers["location"] == f"{PAGE}?done=ended"
    assert statuses(owner.http, *others) == [200, 401, 401]
    assert last_audited(payres) == (f"owner:{owner.path}", "wallet.sign_out", owner.path, '{"sessions":2}')
    assert "Sign out the other" not in owner.words(PAGE)
    assert owner.send(PAGE, "others").headers["location"] == f"{PAGE}?done=over"


def test_browser_of_somebody_else_cannot_be_signed_out(
    payres: Instance, owner: OwnersBrowser, others: Sequence[httpx2.Client]
) -> None:
    name = f"not-{owner.path}"
    own = owner.http.cookies["payres_session"]
    known = [*digests(owner).values(), own, hash_secret(own).hex(), "", "é", "0" * 64, "x" * 5000]
    with signed_in(payres, name) as stranger, OwnersBrowser(payres, name) as second:
        assert not {"Chrome on Android", "Safari on iPad"} & {*digests(stranger)}
        for digest in known:
            answer = stranger.send(PAGE, "end", {"session": digest})
            assert answer.headers["location"] == f"{PAGE}?done=over"
        assert stranger.send(PAGE, "end").headers["location"] == f"{PAGE}?done=over", "no session named is none"
        assert stranger.send(PAGE, "others", csrf=owner.csrf).status_code == 403
        assert statuses(owner.http, *others, stranger.http, second.http) == [200] * 5
        assert stranger.send(PAGE, "others").status_code == 303
        assert statuses(owner.http, *others, stranger.http, second.http) == [200, 200, 200, 200, 401]


def test_forms_of_a_session_that_was_replaced_do_nothing(
    payres: Instance, owner: OwnersBrowser, others: Sequence[httpx2.Client]
) -> None:
    csrf, digest = owner.csrf, digests(owner)["Safari on iPad"]
    owner.http.cookies.clear()
    assert sign_in(owner.http, owner.path).status_code == 303
    for token, status in ((csrf, 403), (owner.csrf, 303)):
        assert owner.send(PAGE, "end", {"session": digest}, csrf=token).status_code == status
        assert statuses(*others) == [200, 200]


def test_ended_sessions_are_not_listed(payres: Instance, owner: OwnersBrowser, others: Sequence[httpx2.Client]) -> None:
    payres.clock.advance(400)
    owner.words("/account")  # which makes this one longer
    payres.clock.advance(600)
    assert digests(owner) == {}


@pytest.mark.parametrize("way", ["password", "changed", "link"])
def test_each_way_to_sign_in_says_where_from(payres: Instance, owner: OwnersBrowser, way: str) -> None:
    with signed_out(payres, **{"User-Agent": FIREFOX, "X-Forwarded-For": "198.51.100.7"}) as http:
        fields = {"choice": "change", "current": PASSWORD, "password": "battery staple", "again": "battery staple"}
        if way == "link":
            made = payres.write(lambda work: wallets.make_password_link(work, owner.path)).url
            path = str(made).removeprefix(payres.base_url)
            assert http.post(path, data=fields | {"csrf": sign_in_token(http, path)}).status_code == 303
        else:
            assert sign_in(http, owner.path, address="198.51.100.7").status_code == 303
        if way == "changed":
            csrf = f"{csrf_token(http.cookies['payres_session'])}.{owner.path}"
            assert http.post("/settings/password", data=fields | {"csrf": csrf}).status_code == 303
        words = words_of(http.get(PAGE))
        assert re.search(r"Firefox on Linux this one Since today, [\d:]{5}\. From 198\.51\.100\.7\.", words), words


@pytest.mark.parametrize(
    ("address", "shown"),
    [("127.0.0.1", None), ("<b>", None), ("::ffff:203.0.113.4", "203.0.113.4"), ("2001:db8::1", "2001:db8::/64")],
)
def test_address_is_shown_as_far_as_it_says_something(
    payres: Instance, owner: OwnersBrowser, address: str, shown: str | None
) -> None:
    with signed_out(payres) as http:
        assert sign_in(http, owner.path, address=address).status_code == 303
        found = re.findall(r"From (\S+)\.(?= |$)", words_of(http.get(PAGE)))
        assert found == ([shown] if shown else [])


SHOWN: Final = [path for path in VIEWS if path != NOTICES]  # where mail is off


@pytest.mark.parametrize("path", SHOWN)
def test_pages_under_settings_lead_to_each_other(owner: OwnersBrowser, path: str) -> None:
    for url in (path, f"{path}/"):
        [tabs, views] = re.findall(
            r'<nav[^>]*>(?:<ul class="views">|\s*<ul>)(.*?)</nav>', owner.http.get(url).text, re.S
        )
        assert re.findall(r'href="([^"]*)" aria-current', tabs) == ["/settings"]
        assert re.findall(r'href="([^"]*)"', views) == SHOWN
        assert re.findall(r'href="([^"]*)" aria-current', views) == [path]


@pytest.mark.usefixtures("still")
def test_failures_in_a_row_from_one_place_are_one_line(owner: OwnersBrowser) -> None:
    with signed_out(owner.instance, **{"User-Agent": CHROME}) as chrome, signed_out(owner.instance) as other:
        for http, password, address in (
            *([(chrome, "wrong", "203.0.113.9")] * 3),
            *((chrome, PASSWORD, "203.0.113.9"), (chrome, "wrong", "203.0.113.9")),
            *([(other, "wrong", "203.0.113.9")] * 2),
            (other, "wrong", "203.0.113.10"),
        ):
            http.cookies.clear()
            sign_in(http, owner.path, password, address=address)
    words = owner.words(PAGE)
    at = r" [\d:]{5} "
    assert re.search(
        rf"Last sign-ins . Wrong password A browser, from 203\.0\.113\.10{at}"
        rf". Wrong password, twice A browser, from 203\.0\.113\.9{at}"
        rf". Wrong password Chrome on Android, from 203\.0\.113\.9{at}"
        rf". Password Chrome on Android, from 203\.0\.113\.9{at}"
        rf". Wrong password, 3 times Chrome on Android, from 203\.0\.113\.9{at}"
        r"Something here was not you\? Change the password and sign out everywhere",
        words,
    ), words


def test_second_step_stands_with_what_is_left_of_it(payres: Instance, owner: OwnersBrowser) -> None:
    words = owner.words(PAGE)
    assert "Codes off A second step after the password. Set codes up" in words
    assert "Recovery codes" not in words
    app, recovery = turn_on(owner)
    words = owner.words(PAGE)
    assert "Codes on since today Asked after the password, not after a passkey. Change the codes" in words
    assert "Recovery codes 10 of 10 left If you lose your devices. Make new ones" in words
    assert "Apps Asked for every higher limit" in words
    with signed_out(payres, **{"User-Agent": CHROME}) as http:
        page = sign_in(http, owner.path, address="203.0.113.9")
        assert send_code(http, send_code(http, page, "000000"), app.next_code()).status_code == 303
        http.cookies.clear()
        assert send_code(http, sign_in(http, owner.path), recovery[0]).status_code == 303
    words = owner.words(PAGE)
    assert "Recovery codes 9 of 10 left" in words
    assert re.search(
        r". Recovery code Chrome on Android .* . Password and code Chrome on Android .* . Wrong code Chrome on And",
        words,
    )
    answer = owner.send("/account/security/limit", "set", {"limit": "25"})
    assert (answer.status_code, answer.headers["location"]) == (303, PAGE)
    assert "Apps Asked again above USD 25.00" in owner.words(PAGE)


def test_guesses_push_out_no_sign_in(tx: Work) -> None:
    wallets.create_wallet(tx, "alice", "USD", 2, None, "hash")
    for way in ("password", *["wrong password"] * (MAX_KEPT_SIGN_INS + 5), *["link"] * 3):
        insert_sign_in(tx, OF_OWNERS, 1, way, NOW, NOWHERE)
    found = [(one.way, times) for one, times in folded(last_sign_ins(tx, OF_OWNERS, 1, NOW))]
    assert found == [("link", 1)] * 3 + [("wrong password", MAX_KEPT_SIGN_INS), ("password", 1)]
    for _ in range(MAX_KEPT_SIGN_INS):
        insert_sign_in(tx, OF_OWNERS, 1, "password", NOW, NOWHERE)
    ways = [one.way for one in last_sign_ins(tx, OF_OWNERS, 1, NOW)]
    assert ways == ["password"] * MAX_KEPT_SIGN_INS + ["wrong password"] * MAX_KEPT_SIGN_INS


def test_where_somebody_was_is_forgotten_after_ninety_days(tx: Work) -> None:
    for path in ("alice", "bob"):
        owner_id = wallets.create_wallet(tx, path, "USD", 2, None, "hash").owner_id
        insert_sign_in(tx, OF_OWNERS, owner_id, "password", NOW, Seen("203.0.113.9", "Firefox on Linux"))
    last = NOW + 90 * DAY - 1
    assert len(last_sign_ins(tx, OF_OWNERS, 1, last)) == 1
    assert last_sign_ins(tx, OF_OWNERS, 1, last + 1) == []
    insert_sign_in(tx, OF_OWNERS, 1, "wrong password", last, NOWHERE)
    assert number(tx, "SELECT count(*) FROM sign_in") == 3
    insert_sign_in(tx, OF_OWNERS, 1, "wrong password", last + 1, NOWHERE)
    assert number(tx, "SELECT count(*) FROM sign_in WHERE address IS NOT NULL") == 0, "of those who never come back too"


def test_passkeys_stand_with_when_they_were_used_and_can_be_removed(payres: Instance, owner: OwnersBrowser) -> None:
    assert "Passkeys" not in owner.words(PAGE), "browsers take none at this address"

    def add(work: Work) -> None:
        owner_id = require_wallet(work, owner.path).owner_id
        now = work.now
        for name, used, suspect in (("Pixel 9", now, None), ("<b>Key", None, None), ("Copied", now, now)):
            stored = PasskeyRecord(
                *(work.new_id(), b"handle", name.encode() + owner.path.encode(), b"", 0, 0, [], name, now),
                owner_id=owner_id,
                last_used_at=used,
                suspect_at=suspect,
            )
            PASSKEY_TABLE.insert(work, stored)

    payres.write(add)
    words, at = owner.words(PAGE), r"today, [\d:]{5}"
    assert re.search(
        rf"Add a passkey Pixel 9 Added {at}\. Used {at}\. Remove <b>Key Added {at}\. Never used\. Remove"
        rf" ! Copied Added {at}\. Not taken any more: it may have been copied\. Remove ",
        words,
    ), words
    path, *_ = re.findall(r'action="(/account/security/passkeys/[^"]*)"', owner.http.get(PAGE).text)
    answer = owner.send(path, "remove")
    assert "This needs your second step again" in words_of(answer)
    assert "Pixel 9" in owner.words(PAGE)
