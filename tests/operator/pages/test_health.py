"""The page of health, what the overview says of it, and what puts findings right."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from payres.accounts.mail import MailAnswer
from payres.core.store.work import Work
from payres.operator.services import operator_of
from payres.operator.settings import OperatorSettings
from payres.operator.store import missing_rates
from payres.operator.upkeep import doctor
from tests.helpers import wait_until
from tests.instance import Instance, run_instance
from tests.operator.pages.browser import Browser, words_of
from tests.operator.pages.test_server import press
from tests.people.mail_server import MailServer
from tests.works import add_usd_peer

CALM = 'class="sign "'


@pytest.fixture(scope="module")
def post() -> Iterator[MailServer]:
    with MailServer().running() as running:
        yield running


@contextmanager
def serve(folder: Path, post: MailServer) -> Iterator[Instance]:
    """The server of a test has another port than its settings say, and the clock of this machine is not tested."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_server", "_clock"):
            patch.setattr(doctor, name, lambda *_: iter(()))
        with run_instance(folder / "payres.db", backup_directory=str(folder), **post.settings) as instance:
            yield instance


@pytest.fixture(scope="module")
def payres(tmp_path_factory: pytest.TempPathFactory, post: MailServer) -> Iterator[Instance]:
    """A peer of its server does not answer."""
    with serve(tmp_path_factory.mktemp("health"), post) as instance:
        instance.write(add_tide)
        yield instance


def add_tide(work: Work) -> None:
    add_usd_peer(work, "tide", "10.00", url="http://127.0.0.1:1/ilp")


def look(payres: Instance, browser: Browser) -> str:
    """What the page says once others were asked."""
    assert press(browser, "/admin/health", "/admin/health/look", "look").headers["location"] == "/admin/health"
    wait_until(lambda: operator_of(payres.context).long_works.latest["look"].ended_at, "the look does not end")
    return browser.words("/admin/health")


def finding(browser: Browser, id: str) -> str:
    return browser.get("/admin/health").text.partition(f'<li id="{id}">')[2].partition("</details></li>")[0]


def test_all_is_in_order_until_a_peer_is_down_and_the_overview_is_not_calm(tmp_path: Path, post: MailServer) -> None:
    with serve(tmp_path, post) as payres, Browser(payres) as ann:
        ann.follow_link("ann")
        assert "Nobody has looked from the outside yet." in ann.words("/admin/health")
        words = look(payres, ann)
        assert "All is in order Payments can be taken. Looked today, " in words
        assert "Mail 0 waiting" not in words, "others say more of it"
        assert "Mail 127.0.0.1 takes mail" in words
        overview = ann.get("/admin")
        assert (CALM in overview.text, "Needs attention" in overview.text) == (True, False)
        payres.write(add_tide)
        assert "1 thing is wrong" in look(payres, ann)
        overview = ann.get("/admin")
        assert 'href="/admin/health#peer-tide"' in overview.text
        assert CALM not in overview.text
        assert re.search("Health, looked today, [0-9:]{5}: 1 thing is wrong.", words_of(overview))


def test_peer_that_is_down_is_asked_again_or_changed_from_the_page(payres: Instance, ann: Browser) -> None:
    look(payres, ann)
    shown = finding(ann, "peer-tide")
    assert "<details open>" in shown
    assert "<b><bdi>127.0.0.1:1 does not answer</bdi></b>" in shown
    assert re.search(r"Since today, [\d:]{5}: ", shown)
    assert re.findall(r'(?:action|href)="([^"]+)"', shown) == [
        *("/admin/health/look", "/admin/peers/tide/change", "/admin/peers/tide")
    ]


def test_page_loads_again_while_it_looks(payres: Instance, ann: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    latest = operator_of(payres.context).long_works.latest
    look(payres, ann)
    monkeypatch.setattr(latest["look"], "ended_at", None)
    page = ann.get("/admin/health").text
    assert 'http-equiv="refresh"' in page
    assert "Look now" not in page
    assert "Looking from the outside too." in page


def test_backup_is_made_where_it_is_missed(payres: Instance, ann: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = (
        payres.read(lambda work: work.settings.of(OperatorSettings).backup_directory)
        + "/payres-20010101T000000Z.db.broken"
    )
    with open(broken, "w", encoding="utf-8"):
        shown = finding(ann, "broken-backup")
    assert "<b><bdi>1 backup is broken</bdi></b>" in shown
    assert "It cannot be restored, until the next good one (Back up now)." in shown
    assert press(ann, "/admin/health", "/admin/backups/make", "make").status_code == 303
    wait_until(lambda: operator_of(payres.context).long_works.latest["backup"].ended_at, "the backup does not end")
    assert not finding(ann, "broken-backup")


def test_missing_rate_is_set_from_the_page(payres: Instance, ann: Browser) -> None:
    for code in ("EUR", "JPY"):
        payres.create_wallet(code.lower(), code)
    payres.write(lambda work: missing_rates.note_missing_rates(work, [("EUR", "JPY")]))
    words = ann.words("/admin/health").replace("! ", "").replace("!", "")
    assert re.search("May be wrong No rate from EUR to JPYSince today, [0-9:]{5}: wanted once", words), words
    fields = {"base": "EUR", "counter": "JPY", "rate": "160", "choice": "set"}
    csrf = re.findall(r'name="csrf" value="(\w+)"', finding(ann, "rate-EUR/JPY"))[0]
    asked = ann.http.post("/admin/set-rate", data=fields | {"csrf": csrf})
    assert "One EUR buys JPY 160?" in words_of(asked)


def test_test_mail_is_sent_from_the_page(ann: Browser, post: MailServer) -> None:
    assert ann.send("/admin/health/mail", address="me@mail.example", choice="send").status_code == 303
    assert "127.0.0.1 has taken it: 250 taken" in ann.words("/admin/health")
    assert [one["Subject"] for one in post.to("me@mail.example")] == ["A test"]
    post.refusals["you@mail.example"] = "550 no such box"
    refused = ann.send("/admin/health/mail", address="you@mail.example", choice="send")
    assert (refused.status_code, "127.0.0.1 did not take it: 550 no such box." in words_of(refused)) == (409, True)
    wrong = ann.send("/admin/health/mail", address="nobody", choice="send")
    assert (wrong.status_code, "nobody is no e-mail address" in words_of(wrong)) == (400, True)
    audit = ann.words("/admin/audit-log")
    assert ("ann sent a test mail me@mail.example" in audit, "answer 550 no such box" in audit) == (True, True)


def test_mail_server_that_takes_nothing_is_found_before_a_mail_waits(
    payres: Instance, ann: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = MailAnswer("535 authentication failed", is_usable=False)
    monkeypatch.setattr("payres.accounts.mail.MailAttempt.greet", lambda _: refusal)
    look(payres, ann)
    shown = finding(ann, "mail")
    assert "<b><bdi>Mail is not sent</bdi></b>" in shown
    assert re.search("Since today, [0-9:]{5}: 535 authentication failed", shown)
    assert 'action="/admin/health/mail"' in shown


def test_who_may_only_look_can_have_others_asked_and_no_more(payres: Instance, reader: Browser) -> None:
    look(payres, reader)
    page = reader.get("/admin/health").text.partition("<main")[2]
    assert {*re.findall('action="([^"]+)"', page)} == {"/admin/health/look"}
    assert 'href="/admin/peers/tide"' in page
    assert "/admin/peers/tide/change" not in page
