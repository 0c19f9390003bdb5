"""The page of what waits: a row for each cause, which is tried or given up as one."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from payres.accounts.mail import PAUSES
from payres.accounts.store import mail
from payres.accounts.store.mail import MAILS, AddressRecord
from payres.accounts.store.owners import OF_OWNERS
from payres.core.protocol.clock import DAY, HOUR, SECOND
from payres.core.store import audit
from payres.core.store.work import Work
from payres.operator.due_work import list_due
from payres.operator.owners import require_owner
from payres.operator.wallets import remove_wallet_factors
from tests.instance import Instance, run_instance
from tests.operator.pages.browser import PASSWORD, Browser
from tests.operator.pages.seed import fill
from tests.operator.pages.test_server import press
from tests.operator.test_due_work import mail_set_aside
from tests.operator.upkeep.test_restored_rights import turn_codes_on

MANY = 7


def failing_mails(work: Work, why: str) -> None:
    for n in range(MANY):
        mail.insert_mail(work, AddressRecord(1, "a@mail.example", 1, "en", "UTC"), "test", {}, f"{why}{n}")
    for one in MAILS.list(work, "WHERE key LIKE ?", f"{why}%"):
        mail.change_mail(work, one.id, attempts=2, last_error=why, send_at=work.now + HOUR)


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Instance]:
    with run_instance(tmp_path / "payres.db") as running:
        fill(running)
        running.write(mail_set_aside)
        running.write(lambda work: failing_mails(work, "535 authentication failed"))
        running.clock.advance(120)  # the packet has waited since then
        yield running


@pytest.fixture
def ann(waiting: Instance) -> Iterator[Browser]:
    with Browser(waiting) as opened:
        opened.follow_link("ann")
        yield opened


@pytest.fixture
def reader(waiting: Instance) -> Iterator[Browser]:
    with Browser(waiting) as opened:
        opened.follow_link("reader", role="reads")
        yield opened


def parts(browser: Browser) -> Sequence[str]:
    return browser.get("/admin/due").text.split('<div class="title"><h2>')[1:]


def test_what_is_for_operators_comes_first_and_a_cause_is_one_row(waiting: Instance, ann: Browser) -> None:
    mine, others = parts(ann)
    assert (mine.startswith("For you</h2>"), others.startswith("Tried again by itself</h2>")) == (True, True)
    assert re.findall("<b><bdi>([^<]+)</bdi></b>", mine) == ["Packet to a peer: second", "Mail: test"]
    assert 'href="/admin/peers/second">It arrived, or not</a>' in mine
    assert re.findall("<b><bdi>([^<]+)</bdi></b>", others) == [f"{MANY} mails: alice"]
    assert "535 authentication failed" in others
    ends = waiting.clock.now() + HOUR + sum(PAUSES[2:])
    day = datetime.fromtimestamp(ends / SECOND, UTC)
    assert f"<p>Tried 2 times. Given up by itself on {day.day} {day:%b}" in others
    assert others.count("<li><time") == 5
    assert f'<a href="/admin/due?kind=mail">All {MANY}</a>' in others
    assert len(ann.rows("/admin/due", kind="mail")) == MANY + 1
    assert ann.get("/admin/due?kind=mail&format=csv").text.count("\n") == MANY + 2
    overview = ann.words("/admin")
    assert f"{MANY + 2} things wait{MANY + 1} mails, 1 packet to a peer. The oldest since today, " in overview


def test_all_of_a_cause_is_tried_and_given_up(waiting: Instance, ann: Browser, reader: Browser) -> None:
    assert "<button" not in reader.get("/admin/due").text.partition("<main")[2]
    page = parts(ann)[1]
    path = re.findall('action="([^"]+/try)"', page)[0]
    csrf = re.findall(r'name="csrf" value="(\w+)"', page)[0]
    give_up = path.replace("/try", "/give-up")
    assert f'<a class="button danger" href="{give_up}">Give up all {MANY}…</a>' in page
    assert f"This gives up all {MANY}." in ann.words(give_up)
    now = waiting.clock.now()
    assert ann.http.post(path, data={"csrf": csrf, "choice": "try"}).status_code == 303
    assert "It is due now, and tried in its turn" in ann.words("/admin/due")
    due = waiting.read(lambda work: [one.send_at for one in MAILS.list(work, "WHERE last_error LIKE '535%'")])
    assert (len(due), all(at is not None and at <= now + HOUR // 2 for at in due)) == (MANY, True)
    assert ann.send(give_up, choice="give", password=PASSWORD).status_code == 303
    assert [one.send_at for one in waiting.read(lambda work: MAILS.list(work, "WHERE key LIKE '535%'"))] == [
        None
    ] * MANY
    assert ann.get(path.removesuffix("/try")).headers["location"] == "/admin/due"


def test_removal_of_a_second_step_stands_first_and_is_stopped_there(
    waiting: Instance, ann: Browser, reader: Browser
) -> None:
    def ask(work: Work) -> None:
        turn_codes_on(work, OF_OWNERS, require_owner(work, "alice"))
        remove_wallet_factors(work, "alice", "lost the telephone")

    waiting.write(ask)
    mine = parts(ann)[0]
    assert re.search("<bdi>The second step of alice is removed tomorrow, [0-9:]{5}</bdi>", mine)
    assert re.search("Asked for by [a-z ]+ today, [0-9:]{5}: “lost the telephone”", mine)
    until = "From then on the password alone opens alice. The owner can say no until then, "
    assert f"{until}but no mail about it has gone." in mine
    address = AddressRecord(
        waiting.read(lambda work: require_owner(work, "alice").id), "a@mail.example", 1, "en", "UTC"
    )
    waiting.write(lambda work: mail.insert_mail(work, address, "remove_factors", {}, "removal", work.now + HOUR))
    assert f"{until}but the mail about it has not gone yet." in parts(ann)[0]

    def send(work: Work) -> None:
        [sent] = MAILS.list(work, key="removal")
        mail.change_mail(work, sent.id, sent_at=work.now, send_at=None)
        audit.record(work, "wallet.separate", "alice", why="its owner called")

    waiting.write(send)
    mine = parts(ann)[0]
    assert f"{until}and so can you." in mine
    assert "Asked for by somebody: “lost the telephone”" in mine, "not who separated a wallet, with that reason"
    assert 'href="/admin/wallets/alice/owner">The owner</a>' in mine
    assert "keep-factors" not in parts(reader)[0]
    [row] = ann.rows("/admin/due", kind="removal")
    assert row["State"] == "can be kept"
    assert press(ann, "/admin/due", "/admin/wallets/alice/keep-factors", "keep").status_code == 303
    assert "The second step of alice" not in parts(ann)[0]
    waiting.write(lambda work: remove_wallet_factors(work, "alice", "lost the telephone"))
    waiting.clock.advance(DAY // SECOND)
    assert not waiting.read(lambda work: list_due(work, "removal")), "the next sign-in ends it"
