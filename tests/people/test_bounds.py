"""What bounds the rows that owners and visitors cause by pages: each form, and each notice."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from payres.accounts import notices, sessions
from payres.accounts.limits import MAX_NOTICES_OF_KIND, MAX_SESSIONS
from payres.accounts.notices import NoticeKind
from payres.accounts.store import mail
from payres.accounts.store.mail import ADDRESSES, MAILS, MailRecord
from payres.accounts.store.owners import OF_OWNERS, owner_at
from payres.accounts.store.sessions import open_sessions
from payres.core.protocol.clock import HOUR, SECOND
from payres.core.store.events import EventRecord
from payres.core.store.rows import number
from payres.core.store.work import Work
from payres.operator import webhooks
from payres.operator.services import operator_of
from payres.people.limits import MAX_EXPORTS_OF_OWNER, MAX_FORMS_OF_OWNER
from payres.people.notice_texts import message_of
from payres.people.services import people_of
from payres.people.serving import PLACES, page_routes
from tests.instance import Instance, run_instance
from tests.operator.pages.browser import Browser
from tests.people.browser import OwnersBrowser, signed_in
from tests.people.mail_server import text_of, with_address
from tests.works import work_at

# The forms that are not counted, because they only take away, so that what there is bounds them.
FREE: Final = {
    ("/account/apps/{grant}", "stop"),
    ("/account/orders/{order}", "pause"),
    ("/account/orders/{order}", "end"),
    ("/account/security", "end"),
    ("/account/security", "others"),
    ("/settings/developer-keys", "revoke"),
    ("/settings/wallets", "keep"),
    ("/settings/webhooks/{id}", "pause"),
    ("/settings/webhooks/{id}", "remove"),
}
# The other paths with forms, and what bounds what these write.
ELSEWHERE: Final = {
    "/pay/{id}": "CHECKOUT_RATE",
    "/pay/{id}/return/{state}": "a checkout, which it changes",
    "/interact/{id}/{nonce}": "a grant, which is decided once",
    "/account/reset/{secret}": "a link of an operator's, which works once",
    "/account/notices/stop/{secret}": "the kinds of notices",
    "/not-me/{secret}": "what a mail tells of, which it takes away once",
}


@pytest.fixture
def payres(tmp_path: Path) -> Iterator[Instance]:
    with run_instance(tmp_path / "payres.db", rate_limit_creations=200) as instance:
        yield instance


@pytest.fixture
def owner(payres: Instance) -> Iterator[OwnersBrowser]:
    with signed_in(payres, "busy") as browser:
        yield browser


def owner_id(payres: Instance, path: str = "busy") -> int:
    found = payres.read(lambda tx: owner_at(tx, path))
    assert found is not None
    return found.id


def test_each_form_of_an_owner_is_counted_or_only_takes_away(payres: Instance, owner: OwnersBrowser) -> None:
    """A new form is counted; one that is not, and each path beside those of owners, must say here what bounds it."""
    forms = people_of(payres.context).forms
    while not forms.take(owner_id(payres)):
        pass
    uncounted = set()
    for path, place in PLACES.items():
        for choice in place.acts:
            answer = owner.send(re.sub(r"{\w+}", "1", path), choice)
            assert answer.status_code != 500
            if answer.status_code != 429:
                uncounted.add((path, choice))
    assert uncounted == FREE
    assert {route.path for route in page_routes()} - PLACES.keys() == ELSEWHERE.keys()


def test_owner_sends_so_many_forms_an_hour_and_others_do_not_wait(payres: Instance, owner: OwnersBrowser) -> None:
    def sent(times: int) -> int:
        return sum(owner.send("/settings", "language").status_code < 400 for _ in range(times))

    at_once = MAX_FORMS_OF_OWNER // 2
    assert sent(at_once + 5) == at_once
    answer = owner.send("/settings", "language")
    assert (answer.status_code, int(answer.headers["retry-after"]) <= 3600 // MAX_FORMS_OF_OWNER) == (429, True)
    with signed_in(payres, "calm") as other:
        assert other.send("/settings", "language").status_code == 303
    payres.clock.advance(60)
    assert sent(10) == MAX_FORMS_OF_OWNER // 60


def test_pausing_again_and_again_is_one_row_of_the_audit_log(payres: Instance) -> None:
    webhook = payres.write(lambda work: webhooks.add(work, "https://hooks.example/")).webhook
    rows = "SELECT count(*) FROM audit WHERE object = ? AND action IN ('webhook.pause', 'webhook.resume')"
    for turn, count in ((webhooks.resume, 0), (webhooks.pause, 1), (webhooks.pause, 1), (webhooks.resume, 2)):
        payres.write(partial(turn, id=webhook.id))
        assert payres.read(lambda tx: number(tx, rows, webhook.id)) == count


def test_account_has_so_many_sessions_and_the_one_in_use_stays(payres: Instance, owner: OwnersBrowser) -> None:
    found = payres.read(lambda tx: owner_at(tx, "busy"))
    assert found is not None
    for _ in range(2):
        payres.clock.advance(600)
        assert owner.http.get("/account").status_code == 200
        payres.clock.advance(1)
        for _ in range(MAX_SESSIONS - 1):
            payres.write(lambda work: sessions.open_session(work, OF_OWNERS, found, sessions.Browser()))
    assert len(payres.read(lambda tx: open_sessions(tx, OF_OWNERS, found.id, payres.clock.now()))) == MAX_SESSIONS
    assert owner.http.get("/account").status_code == 200


def test_statements_of_owners_take_no_slot_of_operators(payres: Instance, owner: OwnersBrowser) -> None:
    month = owner.http.get("/account/activity").text.split("statement.csv?month=")[1][:7]
    own, slots = people_of(payres.context).export_slots, operator_of(payres.context).export_slots

    def asked() -> int:
        return owner.http.get("/account/activity/statement.csv", params={"month": month}).status_code

    assert asked() == 200
    for _ in range(MAX_EXPORTS_OF_OWNER):
        assert own.try_take(owner_id(payres))
    assert asked() == 429
    with Browser(payres) as ann:
        ann.follow_link("counting")
        assert ann.get("/admin/exports/ledger").status_code == 200
    for _ in range(MAX_EXPORTS_OF_OWNER):
        own.release(owner_id(payres))
    taken = [slots.try_take(f"caller {n}") for n in range(20)]
    assert (False in taken, asked()) == (True, 200)
    for n in range(sum(taken)):
        slots.release(f"caller {n}")


def mails(work: Work) -> list[MailRecord]:
    return [*MAILS.list(work, "ORDER BY id")]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("new_browser", {}),
        ("key_added", {"wallet": "busy", "name": "a <key> & more"}),
        (
            "order_waiting",
            {"wallet": "busy", "payee": "Bob", "host": "h", "amount": 5, "asset_code": "USD", "asset_scale": 2}
            | {"problem": "wallet", "day": HOUR, "again": HOUR, "until": HOUR, "next": None},
        ),
    ],
)
def test_many_notices_of_a_kind_are_a_few_mails_an_hour_and_tell_all(
    payres: Instance, kind: NoticeKind, data: dict[str, Any]
) -> None:
    payres.create_wallet("busy")
    to = with_address(payres, "busy", "busy@mail.example")

    def scenario(work: Work) -> None:
        mail.turn(work, on=True)
        ADDRESSES.update(work, to, language="de")
        for hour in range(2):
            now = work_at(work, work.now + hour * HOUR)
            for n in range(15):
                for _ in range(2):  # what has a key is told once
                    notices.notify(now, to, kind, key=f"{kind}:{hour}:{n}", **data)
            found = mails(now)[hour * MAX_NOTICES_OF_KIND :]
            assert len(found) == MAX_NOTICES_OF_KIND
            assert [one.send_at for one in found] == [now.now] * (MAX_NOTICES_OF_KIND - 1) + [now.now + HOUR]
        notice = message_of(now, found[-1])
        assert notice is not None
        assert notice["Subject"].endswith(" (und 11 weitere)")
        assert len(re.findall(r"^.*\bbusy\b", text_of(notice), re.MULTILINE)) == 12
        for _ in range(30):
            notices.notify(now, to, kind, **data)
        assert len(mails(now)) == 2 * MAX_NOTICES_OF_KIND
        notice = message_of(now, mails(now)[-1])
        assert notice is not None
        assert "Das sind die letzten; es waren mehr." in text_of(notice)
        later = work_at(now, now.now + HOUR)  # the last is due, and may be on its way
        for _ in range(MAX_NOTICES_OF_KIND):
            notices.notify(later, to, kind, **data)
        assert len(mails(later)) == 3 * MAX_NOTICES_OF_KIND

    payres.write(scenario)


def test_notices_of_money_are_no_more_often_where_the_mail_server_refuses_them(payres: Instance) -> None:
    payres.create_wallet("busy")
    to = with_address(payres, "busy", "busy@mail.example")

    def scenario(work: Work) -> None:
        work.execute("INSERT OR IGNORE INTO mail_cursor VALUES (1, 0)")
        for n in range(5):
            now = work_at(work, work.now + (n + 1) * SECOND)
            event = EventRecord(1000 + n, "wallet.deposited", None, b"{}", now.now)
            notices.gather(now, to, "money", 1, f"{n}:100", event)
            if n == 0:
                work.execute("UPDATE mail SET send_at = NULL, last_error = 'refused for good'")
        assert [one.send_at is None for one in mails(work)] == [True, False]
        assert (mails(work)[-1].send_at or 0) >= work.now + HOUR

    payres.write(scenario)
