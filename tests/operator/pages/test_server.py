"""The pages of backups, of the ledger check, of operators and of settings."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from payres.core.store.migrations import require_payres
from payres.operator.declared.long_work import LongWork
from payres.operator.services import operator_of
from payres.operator.store.operators import OPERATORS
from payres.operator.upkeep.backup_and_restore import MadeBackup
from tests.helpers import wait_until
from tests.instance import Instance, run_instance
from tests.operator.pages.browser import PASSWORD, Browser, words_of

WRONG = "not the password"


@pytest.fixture(scope="module")
def payres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "backups").mkdir()
    with run_instance(folder / "payres.db", backup_directory=str(folder / "backups")) as instance:
        yield instance


@pytest.fixture
def made(payres: Instance, ann: Browser) -> str:
    """The name of a backup that was made in the pages."""
    payres.clock.advance(60)
    before = {one["File"] for one in ann.rows("/admin/backups")}
    begun = press(ann, "/admin/backups", "/admin/backups/make", "make")
    assert begun.headers["location"] == "/admin/backups"
    wait_until(lambda: latest(payres, "backup").ended_at, "the backup does not end")
    [name] = {one["File"] for one in ann.rows("/admin/backups")} - before
    return name


def latest(payres: Instance, kind: str) -> LongWork:
    return operator_of(payres.context).long_works.latest[kind]


def press(browser: Browser, page: str, path: str, choice: str) -> httpx2.Response:
    fields = {"csrf": re.findall(r'name="csrf" value="(\w+)"', browser.get(page).text)[0], "choice": choice}
    return browser.http.post(path, data=fields)


def test_backup_is_made_beside_the_page_and_listed(payres: Instance, ann: Browser, made: str) -> None:
    [row, *_] = ann.rows("/admin/backups")
    assert (row["State"], row["By"], row["File"]) == ("checked", "ann", made)
    outcome = latest(payres, "backup").outcome
    assert isinstance(outcome, MadeBackup)
    assert (outcome.backup.endswith(made), latest(payres, "backup").problem) == (True, "")
    assert 'http-equiv="refresh"' not in ann.get("/admin/backups").text
    [newest, *_] = ann.rows("/admin/audit-log")
    assert (newest["Who"], newest["Did what"]) == ("page:ann", "database.backup")


def test_page_says_how_far_a_backup_is(payres: Instance, ann: Browser) -> None:
    works = operator_of(payres.context).long_works.latest
    works["backup"] = LongWork("page:ann", payres.clock.now())
    works["backup"].note("Copying", 132, 212)
    try:
        page = ann.get("/admin/backups")
        assert '<meta http-equiv="refresh" content="5">' in page.text
        assert "62 % of this step" in words_of(page)
        refused = press(ann, "/admin/backups", "/admin/backups/make", "make")
        assert (refused.status_code, "A backup is under way already" in words_of(refused)) == (409, True)
    finally:
        del works["backup"]


def test_backup_is_downloaded_after_the_password_and_the_log_says_so(
    payres: Instance, ann: Browser, made: str, tmp_path: Path
) -> None:
    path = f"/admin/backups/{made}"
    asked = ann.words(path)
    assert "has every secret" in asked
    assert "Your password, because the file has every secret" in asked
    refused = ann.send(path, password=WRONG)
    assert (refused.status_code, "This is not the password" in words_of(refused)) == (401, True)
    answer = ann.send(path, password=PASSWORD)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/vnd.sqlite3")
    assert answer.headers["content-disposition"] == f'attachment; filename="{made}"'
    assert answer.headers["cache-control"] == "no-store"
    (tmp_path / "copy.db").write_bytes(answer.content)
    with closing(sqlite3.connect(tmp_path / "copy.db")) as connection:
        require_payres(connection)
    [newest, *_] = ann.rows("/admin/audit-log")
    assert (newest["Who"], newest["Did what"], newest["To what"]) == ("page:ann", "backup.download", made)


def test_backup_is_not_for_who_may_look_only(payres: Instance, reader: Browser, made: str) -> None:
    page = reader.get("/admin/backups")
    assert "Make one now" not in page.text
    for path, choice in (("/admin/backups/make", "make"), (f"/admin/backups/{made}", "download")):
        assert "You may look at everything and change nothing" in reader.words(path)
        fields = {"csrf": re.findall(r'name="csrf" value="(\w+)"', page.text)[0], "choice": choice}
        assert reader.http.post(path, data=fields | {"password": PASSWORD}).status_code == 403


@pytest.mark.parametrize("name", ["payres.db", "..%2Fpayres.db", "%2Fetc%2Fpasswd", "payres-20260101T000000Z.db"])
def test_only_what_is_listed_can_be_downloaded(payres: Instance, ann: Browser, name: str) -> None:
    assert ann.get(f"/admin/backups/{name}").status_code == 404
    fields = {"csrf": re.findall(r'name="csrf" value="(\w+)"', ann.get("/admin/backups").text)[0], "choice": "download"}
    assert ann.http.post(f"/admin/backups/{name}", data=fields | {"password": PASSWORD}).status_code == 404


def test_ledger_is_checked_beside_the_page(payres: Instance, ann: Browser) -> None:
    assert "Nobody has begun one here since the server started" in ann.words("/admin/health/ledger")
    assert press(ann, "/admin/health/ledger", "/admin/health/ledger/check", "check").status_code == 303
    wait_until(lambda: latest(payres, "check").ended_at, "the check does not end")
    rows = ann.rows("/admin/health/ledger")
    assert len(rows) == latest(payres, "check").total
    assert {row["State"] for row in rows} == {"holds"}


def test_operator_is_let_in_by_a_link_that_is_shown_once(payres: Instance, ann: Browser) -> None:
    path = "/admin/new-operator"
    assert f'action="{path}"' in ann.get("/admin/operators").text
    fields = {"choice": "make", "name": "cleo", "role": "reads"}
    assert "Your password, because this is about who may do what" in words_of(ann.send(path, **fields))
    assert payres.read(lambda work: OPERATORS.find(work, name="cleo")) is None
    made = ann.send(path, **fields, password=PASSWORD)
    assert "Copy it now: it is shown this once." in words_of(made)
    link = re.findall(r"http://[^<]*/admin(/link/[\w-]{43})", made.text)[0]
    with Browser(payres) as other:
        other.send(f"/admin{link}", password=PASSWORD, again=PASSWORD)
        assert "cleo (reads)" in other.get("/admin").text
        assert "Make the link" not in other.words(path)
        assert "Add an operator" not in other.words("/admin/operators")
    words = ann.words("/admin/operators")
    assert "Aann you no second stepEverything. Signed in now.Change" in words
    assert "Ccleo no second stepLooks only. Signed in now.Change" in words
    assert '\r\n"cleo","reads","","active"' in ann.get("/admin/operators", format="csv").text


def test_role_that_was_taken_counts_at_once(payres: Instance, ann: Browser) -> None:
    with Browser(payres) as other:
        other.follow_link("dan")
        page = "/admin/operators/dan/change"
        assert ann.send(page, choice="change", role="reads", password=PASSWORD).status_code == 303
        assert "dan has the role reads now" in ann.words("/admin/operators/dan")
        assert "You may look at everything and change nothing" in other.words("/admin/new-wallet")
        removed = ann.send("/admin/operators/dan/remove", choice="remove", password=PASSWORD)
        assert removed.headers["location"] == "/admin/operators"
        assert "dan is no operator any more" in ann.words("/admin/operators")
        assert other.get("/admin").status_code == 401
    assert "Ddan" not in ann.words("/admin/operators")


def test_last_who_may_do_everything_is_told_the_way_out(payres: Instance, ann: Browser) -> None:
    refused = ann.send("/admin/operators/ann/remove", choice="remove", password=PASSWORD)
    assert refused.status_code == 409
    assert "ann is the last who may do everything here" in words_of(refused)
    assert "`payres admin link`" not in ann.words("/admin/operators")
    assert "payres admin link on the server lets somebody in" in ann.words("/admin/operators")


def test_settings_say_where_they_come_from(payres: Instance, ann: Browser) -> None:
    shown = {row["Setting"]: row["From"] for row in ann.rows("/admin/settings")}
    assert (shown["backup_directory"], shown["backup_keep"]) == ("set", "default")
