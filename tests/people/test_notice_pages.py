"""The page of notices: an address that a code confirms, the choices, and the link that ends mails about money."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from payres.accounts import notices
from payres.accounts.owners import store_password
from payres.accounts.store import mail
from payres.accounts.store.mail import ADDRESSES, AddressRecord
from payres.core.store.audit import AUDIT
from payres.core.store.wallets import require_wallet
from tests.helpers import wait_until
from tests.instance import Instance, run_instance
from tests.operator.pages.browser import words_of
from tests.people.browser import OwnersBrowser, signed_in, signed_out
from tests.people.mail_server import MailServer, text_of, with_address

PAGE = "/account/notices"
WRONG = "This is not the code that was sent last"


@pytest.fixture(scope="module")
def post() -> Iterator[MailServer]:
    with MailServer().running() as running:
        yield running


@pytest.fixture(scope="module")
def payres(tmp_path_factory: pytest.TempPathFactory, post: MailServer) -> Iterator[Instance]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("payres.accounts.mail.POLL_SECONDS", 0.01)
        with run_instance(tmp_path_factory.mktemp("notices") / "payres.db", **post.settings) as instance:
            yield instance


@pytest.fixture
def owner(payres: Instance, request: pytest.FixtureRequest) -> Iterator[OwnersBrowser]:
    with signed_in(payres, f"owner-{abs(hash(request.node.nodeid))}") as browser:
        yield browser


def address(owner: OwnersBrowser) -> AddressRecord | None:
    owner_id = owner.instance.read(partial(require_wallet, wallet=owner.path)).owner_id
    return owner.instance.read(lambda tx: ADDRESSES.get(tx, owner_id))


def mail_of(owner: OwnersBrowser) -> str:
    return f"{owner.path}@mail.example"


def code_in(text: str) -> str:
    return "".join(re.findall(r"\b([0-9]{4}) ([0-9]{4})\b", text)[0])


def asked(owner: OwnersBrowser, post: MailServer, email: str) -> str:
    """The code that is sent to an address."""
    before = len(post.to(email))
    answer = owner.send(PAGE, "ask", {"email": email})
    assert (answer.status_code, answer.headers["location"]) == (303, PAGE)
    return code_in(text_of(post.wait_for(email, before + 1)[-1]))


def test_address_gets_notices_once_its_code_is_typed_in(owner: OwnersBrowser, post: MailServer) -> None:
    assert "Where to E-mail address We send a code there first." in owner.words(PAGE)
    assert f'href="{PAGE}"' in owner.http.get("/settings").text
    code = asked(owner, post, mail_of(owner))
    assert f"A code is on its way to {mail_of(owner)}. Code 8 digits" in owner.words(PAGE)
    owner.instance.write(partial(store_password, path=owner.path, password_hash="x"))
    with OwnersBrowser(owner.instance, owner.path) as again:
        owner.http.cookies = again.http.cookies
    wrong = owner.send(PAGE, "confirm", {"code": f"{(int(code) + 1) % 10**8:08}"})
    assert (wrong.status_code, WRONG in words_of(wrong)) == (400, True)
    right = owner.send(PAGE, "confirm", {"code": f" {code[:4]} {code[4:]} "})
    assert right.headers["location"] == f"{PAGE}?done=confirmed"
    assert f"{mail_of(owner)} confirmed" in owner.words(PAGE)
    audited = "WHERE action = 'wallet.change_notices' AND object = ?"
    [entry] = owner.instance.read(lambda work: AUDIT.list(work, audited, owner.path))
    assert entry.details == {"address": "confirmed"}, "and not which"
    assert len(post.to(mail_of(owner))) == 1, "nothing is sent to what is not confirmed"
    assert owner.send(PAGE, "test").headers["location"] == f"{PAGE}?done=test"
    assert post.wait_for(mail_of(owner), 2)[1]["Subject"] == "A test"
    wait_until(lambda: "Last notice today" in owner.words(PAGE))


def test_change_is_told_to_the_old_address_once_the_new_one_is_confirmed(
    owner: OwnersBrowser, post: MailServer
) -> None:
    old, new = mail_of(owner), f"new-{mail_of(owner)}"
    owner.send(PAGE, "confirm", {"code": asked(owner, post, old)})
    assert 'name="email"' in owner.http.get(PAGE, params={"change": 1}).text
    code = asked(owner, post, new)
    assert f"{old} confirmed" in owner.words(PAGE)
    owner.send(PAGE, "confirm", {"code": code})
    assert post.wait_for(old, 2)[1]["Subject"] == "Notices go elsewhere now"
    assert f"{new} confirmed" in owner.words(PAGE)
    owner.send(PAGE, "forget")
    assert post.wait_for(new, 2)[1]["Subject"] == "Notices have ended"
    assert (found := address(owner)) is not None
    assert found.email is None
    assert "confirmed" not in owner.words(PAGE)


def test_code_ends_after_an_hour_five_wrong_ones_and_the_next(owner: OwnersBrowser, post: MailServer) -> None:
    to = mail_of(owner)
    first = asked(owner, post, to)
    second = asked(owner, post, to)
    if first != second:
        assert WRONG in words_of(owner.send(PAGE, "confirm", {"code": first}))
    for _ in range(5):
        owner.send(PAGE, "confirm", {"code": "x"})
    assert "There were too many wrong codes" in words_of(owner.send(PAGE, "confirm", {"code": second}))
    third = asked(owner, post, to)
    for _ in range(4):  # so that the session lasts
        owner.instance.clock.advance(890)
        owner.words("/account")
    owner.instance.clock.advance(41)
    assert WRONG in words_of(owner.send(PAGE, "confirm", {"code": third}))
    assert (found := address(owner)) is not None
    assert found.email is None
    stored = owner.instance.read(lambda work: work.execute("SELECT data FROM mail WHERE kind = 'code'").fetchall())
    assert third not in str(stored), "a code that was sent is not kept"


def test_no_more_than_five_codes_an_hour(owner: OwnersBrowser) -> None:
    answers = [owner.send(PAGE, "ask", {"email": f"n{n}-{mail_of(owner)}"}).status_code for n in range(6)]
    assert answers == [303] * 5 + [429]


@pytest.mark.parametrize(
    "email",
    ["", "alice", "a@b c", "a@b\nBcc: eve@evil.example", "a@b, c@d", "<a@b>", "a@", "@b", "é@b c", "a" * 255 + "@b"],
)
def test_what_is_no_address_says_so_at_its_field(owner: OwnersBrowser, email: str) -> None:
    answer = owner.send(PAGE, "ask", {"email": email})
    assert (answer.status_code, "This is no e-mail address" in words_of(answer)) == (400, True)
    assert address(owner) is None


def test_address_that_mail_servers_may_refuse_is_not_called_wrong(owner: OwnersBrowser) -> None:
    answer = owner.send(PAGE, "ask", {"email": "müller@example.com"})
    assert (answer.status_code, "such as ü before the @ are not taken here" in words_of(answer)) == (400, True)
    assert owner.send(PAGE, "ask", {"email": "anna@münchen.example"}).status_code == 303
    assert "A code is on its way to anna@münchen.example." in owner.words(PAGE)


def test_domain_beyond_ascii_is_written_in_ascii(owner: OwnersBrowser) -> None:
    assert owner.send(PAGE, "ask", {"email": "joerg@Müller.example"}).status_code == 303
    found = address(owner)
    assert found is not None
    assert found.pending == "joerg@xn--mller-kva.example"


def test_choices_are_kept_with_the_language_and_time_zone(payres: Instance) -> None:
    with signed_in(payres, "carla", "de-CH,de") as owner:
        owner_id = with_address(payres, "carla", "carla@mail.example")
        assert "Benachrichtigungen Worüber wir Ihnen schreiben" in owner.words(PAGE)
        owner.send("/settings", "zone", {"zone": "America/Lima"})
        answer = owner.send(PAGE, "save", {"money": "hour", "app": "once"})
        assert answer.headers["location"] == f"{PAGE}?done=saved"
        assert payres.read(partial(mail.rates, owner_id=owner_id)) == {"money": "hour", "failed": "off", "app": "once"}
        assert (found := address(owner)) is not None
        assert (found.language, found.time_zone) == ("de-ch", "America/Lima")
        page = owner.http.get(PAGE).text
        assert re.findall(r'name="(\w+)" value="(\w+)" checked', page) == [("money", "hour"), ("app", "once")]
        owner.send(PAGE, "save", {"money": "every second"})
        assert payres.read(partial(mail.rates, owner_id=owner_id)) == dict.fromkeys(notices.CHOICES, "off")


def test_link_ends_mails_about_money_by_a_post_alone(payres: Instance) -> None:
    payres.create_wallet("stops")
    owner_id = with_address(payres, "stops", "stops@mail.example")

    def link() -> str:
        found = payres.read(lambda tx: ADDRESSES.by_id(tx, owner_id))
        return f"{PAGE}/stop/{payres.read(partial(notices.stop_token, address=found))}"

    url = link()
    with signed_out(payres) as http:
        page = http.get(url)
        assert words_of(page).startswith("No more mails about money?")
        assert "payres_session" not in page.headers.get("set-cookie", "")
        assert "stops" not in words_of(page), "it says nothing of whose it is"
        assert payres.read(partial(mail.rates, owner_id=owner_id)) == {}
        answer = http.post(url, data={"List-Unsubscribe": "One-Click"})
        assert (answer.status_code, words_of(answer)[:5]) == (200, "Ended")
        assert payres.read(partial(mail.rates, owner_id=owner_id)) == {"money": "off", "failed": "off"}
        assert http.get("/account").status_code == 401, "the link signs nobody in"
        assert http.post(url, files={"List-Unsubscribe": (None, "One-Click")}).status_code == 200
        assert http.request("PUT", url).status_code == 405
        for other in (
            url[:-1] + ("A" if url[-1] != "A" else "B"),
            f"{PAGE}/stop/x",
            f"{PAGE}/stop/{owner_id}.",
            f"{PAGE}/stop/9.a",
        ):
            assert (http.get(other).status_code, http.post(other).status_code) == (404, 404)
        with_address(payres, "stops", "other@mail.example")
        assert http.get(url).status_code == 404, "it was of another address"
        assert http.get(link()).status_code == 200


def test_page_is_not_there_without_a_mail_server(tmp_path: Path) -> None:
    with run_instance(tmp_path / "payres.db") as instance, signed_in(instance, "carla") as owner:
        assert owner.http.get(PAGE).status_code == 404
        assert owner.send(PAGE, "ask", {"email": "carla@mail.example"}).status_code == 404
        assert "Notices" not in owner.words("/settings")


def test_address_is_shown_to_nobody_else(payres: Instance) -> None:
    payres.create_wallet("secretive")
    with_address(payres, "secretive", "hidden@mail.example")
    with signed_in(payres, "curious") as other, signed_out(payres) as http:
        assert "hidden@mail.example" not in other.http.get(PAGE).text
        assert "hidden@" not in http.get("/secretive").text + http.get(PAGE).text
