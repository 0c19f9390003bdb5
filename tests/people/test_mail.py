"""Mails to owners: what is sent when, to a mail server that takes it, refuses it, or says nothing."""

import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from payres.accounts import notices, owners
from payres.accounts.limits import MAX_NOTICES_OF_KIND
from payres.accounts.mail import PAUSES, MailAnswer, MailAttempt, MailWorker
from payres.accounts.settings import MailSettings
from payres.accounts.store import mail
from payres.accounts.store.mail import ADDRESSES, MAILS, MailRecord
from payres.agenda.store.agenda import FAULT_PAUSES, FAULTS, FaultRecord
from payres.core.process.settings import Settings
from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import InvalidRequest
from payres.core.store.events import delete_old_events, last_sequence
from payres.core.store.incoming_payments import INCOMING
from payres.core.store.work import Environment, Work
from payres.interledger.clearing import end_sending
from payres.operator import assets, grants, refunds, wallets
from payres.operator.upkeep import doctor
from payres.people.mail import tell_of_events
from payres.people.notice_texts import LINES, Notice, envelope
from payres.people.store.refunds import REFUNDS
from payres.settings import settings_with
from tests.accounts.test_factor_pages import hidden, send_code, with_codes
from tests.helpers import TIMEOUT, Json, receiver_of, usd, wait_until
from tests.instance import Instance, run_instance
from tests.people.browser import PASSWORD, OwnersBrowser, signed_out
from tests.people.mail_server import MailServer, text_of, with_address
from tests.people.test_activity_rules import send_away
from tests.people.test_sign_in import sign_in
from tests.tls import privately_issued

NUMBERS = count(1)

SOON = "payres.accounts.mail.{}_SECONDS"


@pytest.fixture(scope="module", autouse=True)
def hurry() -> Iterator[None]:
    """The worker looks at once again; what it waits for by the clock of the server, tests move."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("POLL", "REST"):
            patch.setattr(SOON.format(name), 0.01)
        patch.setattr("payres.accounts.mail.SOCKET_SECONDS", 0.5)
        yield


@pytest.fixture
def post() -> Iterator[MailServer]:
    with MailServer().running() as running:
        yield running


@pytest.fixture
def payres(tmp_path: Path, post: MailServer) -> Iterator[Instance]:
    with run_instance(tmp_path / "payres.db", **post.settings) as instance:
        yield instance


def mails(instance: Instance) -> list[MailRecord]:
    return [*instance.read(lambda tx: MAILS.list(tx, "ORDER BY id"))]


def notify(instance: Instance, owner_id: int, kind: Any = "password", **data: Any) -> None:
    instance.write(lambda work: notices.notify(work, owner_id, kind, **data))


def pay(instance: Instance, payer: str, receiver: str, **members: Any) -> None:
    instance.client.pay(instance.wallet(payer), receiver, **members)


def has_sent(instance: Instance, count: int) -> bool:
    return sum(one.sent_at is not None for one in mails(instance)) == count


def has_tried(instance: Instance, count: int) -> bool:
    return mails(instance)[0].attempts == count


def seen_all(instance: Instance) -> bool:
    """Whether all events are in mails."""
    return instance.read(lambda tx: mail.cursor(tx) == last_sequence(tx))


def test_money_is_told_at_once_and_then_once_an_hour(payres: Instance, post: MailServer) -> None:
    to = "alice@mail.example"
    with_address(payres, "alice", to)
    bill = receiver_of(payres, 500, "alice")
    pay(payres, "bob", bill)
    wait_until(partial(has_sent, payres, 1))
    [first] = post.to(to)
    assert first["Subject"] == "Money arrived: USD 5.00 from Bob"
    for value in (100, 200, 300):
        pay(payres, "bob", receiver_of(payres, value, "alice"))
    wait_until(lambda: seen_all(payres))
    assert len(post.to(to)) == 1
    payres.clock.advance(3601)
    second = post.wait_for(to, 2)[1]
    assert second["Subject"] == "3 payments have arrived: USD 6.00"
    lines = "USD 1.00 from Bob\nUSD 2.00 from Bob\nUSD 3.00 from Bob\nUSD 6.00 in all are in alice since "
    assert text_of(second).startswith(lines)
    assert first["Message-ID"] != second["Message-ID"]


def test_thousand_payments_are_at_most_two_mails_an_hour_and_their_sum_is_told(
    payres: Instance, post: MailServer
) -> None:
    to = "busy@mail.example"
    payres.create_wallet("busy")
    with_address(payres, "busy", to)
    payres.write(partial(wallets.deposit, wallet="busy", amount="0.10"))
    wait_until(partial(has_sent, payres, 1))
    for _ in range(10):
        payres.write(lambda work: [wallets.deposit(work, "busy", "0.10") for _ in range(100)])
    wait_until(lambda: seen_all(payres))
    payres.clock.advance(3601)
    *_, last = post.wait_for(to, 2)
    wait_until(lambda: not payres.read(lambda tx: mail.waiting(tx, 1 << 62))[0])
    assert len(post.to(to)) == 2
    assert last["Subject"] == "Many payments have arrived: USD 100.00"
    assert text_of(last).count("USD 0.10 paid in by Harbour\n") == LINES
    assert "and many more: USD 100.00 in all are in busy since " in text_of(last)


def test_clock_that_was_ahead_delays_no_notice_by_more_than_the_usual_hour(payres: Instance, post: MailServer) -> None:
    """Neither to an address that was confirmed meanwhile, nor after a mail of that time; what follows is gathered."""
    to, ahead = "alice@mail.example", 20 * 86_400
    payres.clock.advance(ahead)
    with_address(payres, "alice", to)
    payres.clock.advance(-ahead)
    pay(payres, "bob", receiver_of(payres, 500, "alice"))
    wait_until(partial(has_sent, payres, 1))
    payres.clock.advance(ahead)
    pay(payres, "bob", receiver_of(payres, 600, "alice"))
    wait_until(partial(has_sent, payres, 2))
    payres.clock.advance(-ahead)
    for value in (700, 800):
        pay(payres, "bob", receiver_of(payres, value, "alice"))
    wait_until(lambda: seen_all(payres))
    payres.clock.advance(3601)
    told = [one["Subject"] for one in post.wait_for(to, 3)]
    assert told == [
        *(f"Money arrived: USD {amount}.00 from Bob" for amount in (5, 6)),
        "2 payments have arrived: USD 15.00",
    ]


def test_money_of_which_no_event_was_read_yet_is_told_with_the_rest(payres: Instance, post: MailServer) -> None:
    to = "alice@mail.example"
    with_address(payres, "alice", to)
    pay(payres, "bob", receiver_of(payres, 500, "alice"))
    wait_until(partial(has_sent, payres, 1))
    for value in (100, 200):
        pay(payres, "bob", receiver_of(payres, value, "alice"))
    wait_until(lambda: seen_all(payres))
    waiting = mails(payres)[-1]
    early = waiting.data | {"items": waiting.data["items"][:1]}
    payres.write(lambda work: mail.change_mail(work, waiting.id, data=early))
    payres.clock.advance(3601)
    lines = "USD 1.00 from Bob\nUSD 2.00 from Bob\nUSD 3.00 in all are in alice since "
    assert text_of(post.wait_for(to, 2)[1]).startswith(lines)


@pytest.mark.parametrize("back", [0, 31 * 86_400])
def test_money_is_told_once_though_the_mail_that_told_it_is_deleted(
    payres: Instance, post: MailServer, back: int
) -> None:
    """After a month, or by a clock that was ahead by so much."""
    to = "alice@mail.example"
    owner_id = with_address(payres, "alice", to)
    pay(payres, "bob", receiver_of(payres, 500, "alice"))
    wait_until(partial(has_sent, payres, 1))
    payres.clock.advance(mail.KEPT.after / 1e6 + 1)
    notify(payres, owner_id)
    payres.clock.advance(-back)
    pay(payres, "bob", receiver_of(payres, 600, "alice"))
    assert [one["Subject"] for one in post.wait_for(to, 3)][2] == "Money arrived: USD 6.00 from Bob"


def test_hourly_waits_for_the_hour_and_never_is_never(payres: Instance, post: MailServer) -> None:
    rates: dict[str, mail.MailRate] = {"hourly": "hour", "never": "off"}
    for path, rate in rates.items():
        payres.create_wallet(path)
        owner_id = with_address(payres, path, f"{path}@mail.example")
        payres.write(partial(mail.set_rates, owner_id=owner_id, wanted={"money": rate}))
        payres.write(partial(wallets.deposit, wallet=path, amount="7.00"))
    wait_until(lambda: seen_all(payres))
    assert not post.received
    payres.clock.advance(3601)
    [hourly] = post.wait_for("hourly@mail.example")
    assert hourly["Subject"] == "Money arrived: USD 7.00 paid in by Harbour"
    assert not post.to("never@mail.example")


@pytest.mark.parametrize("change", ["off", "stop", "forget", "confirm"])
def test_what_waits_is_not_sent_where_it_is_not_wanted_any_more(
    payres: Instance, post: MailServer, change: str
) -> None:
    path, to = f"waits-{change}", f"{change}@mail.example"
    payres.create_wallet(path)
    owner_id = with_address(payres, path, to)
    payres.write(partial(mail.set_rates, owner_id=owner_id, wanted={"money": "hour"}))
    payres.write(partial(wallets.deposit, wallet=path, amount="7.00"))
    wait_until(lambda: seen_all(payres))
    address = payres.read(lambda tx: ADDRESSES.by_id(tx, owner_id))
    if change == "off":
        payres.write(partial(mail.set_rates, owner_id=owner_id, wanted={"money": "off"}))
    elif change == "stop":
        payres.write(lambda work: notices.stop(work, notices.stop_token(work, address)))
    elif change == "forget":
        payres.write(partial(notices.forget, owner_id=owner_id))
    else:
        with_address(payres, path, "new@mail.example")
        payres.clock.advance(1)
        payres.write(partial(wallets.deposit, wallet=path, amount="8.00"))
        wait_until(lambda: seen_all(payres))
    payres.clock.advance(3601)
    wait_until(lambda: not payres.read(lambda tx: mail.waiting(tx, 1 << 62))[0])
    assert [one["Subject"] for one in post.to(to)] == ["Notices have ended"] * (change == "forget")
    told = ["Money arrived: USD 8.00 paid in by Harbour"] if change == "confirm" else []
    assert [one["Subject"] for one in post.to("new@mail.example")] == told


def test_standing_order_that_is_not_paid_is_told_as_a_payment_that_failed(payres: Instance, post: MailServer) -> None:
    to = "orders@mail.example"
    data: Json = {"payee": "Bob", "host": "bob.example", "amount": 100, "asset_code": "USD", "asset_scale": 2}
    data |= {"problem": "late", "day": payres.clock.now(), "again": None, "wallet": "orders"}
    payres.create_wallet("orders")
    owner_id = with_address(payres, "orders", to)
    notify(payres, owner_id, "order_failed", **data)
    post.wait_for(to)
    payres.write(partial(mail.set_rates, owner_id=owner_id, wanted={"failed": "off"}))
    notify(payres, owner_id, "order_failed", **data)
    notify(payres, owner_id)
    assert [one["Subject"] for one in post.wait_for(to, 2)] == [
        *("Not paid: USD 1.00 to Bob", "Your password was changed")
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Bob", "Harbour allowed “Bob” for you"),
        ("J. R. Smith", "Harbour allowed “J. R. Smith” for you"),
        ("Harbour: locked, see http://evil.example", "Harbour allowed “shop.example” for you"),
        ("Your bank evil.example", "Harbour allowed “shop.example” for you"),
        ("write to a@b", "Harbour allowed “shop.example” for you"),
        ("Bob " * 40, f"Harbour allowed “{'Bob ' * 11}Bob…” for you"),
        ("B" * 200, f"Harbour allowed “{'B' * 47}…” for you"),
    ],
)
def test_name_that_others_chose_is_short_and_no_link(payres: Instance, post: MailServer, name: str, said: str) -> None:
    payres.create_wallet(path := f"named-{next(NUMBERS)}")
    owner_id = with_address(payres, path, f"{path}@mail.example")
    notify(payres, owner_id, "grant_by_operator", app=name, host="shop.example")
    assert post.wait_for(f"{path}@mail.example")[0]["Subject"] == said


def test_parts_of_a_payment_are_told_once_each(payres: Instance, post: MailServer) -> None:
    to = "parts@mail.example"
    payres.create_wallet("parts", asset="EUR")
    payres.write(lambda work: assets.set_rate(work, "USD", "EUR", "0.5"))
    payres.write(lambda work: assets.deposit_liquidity(work, "EUR", 2, "9.00"))
    with_address(payres, "parts", to)
    bill = receiver_of(payres, wallet="parts")
    pay(payres, "bob", bill, debitAmount=usd(100))
    wait_until(partial(has_sent, payres, 1))
    payres.clock.advance(3601)
    pay(payres, "bob", bill, debitAmount=usd(200))
    wait_until(partial(has_sent, payres, 2))
    payres.clock.advance(-8)  # no reason to tell anything again, or nothing of it
    pay(payres, "bob", bill, debitAmount=usd(50))
    payres.clock.advance(19)
    wait_until(lambda: len(mails(payres)) == 3, "what came so soon after an event has one too")
    payres.clock.advance(3601)
    told = [str(one["Subject"]) for one in post.wait_for(to, 3)]
    assert told == [f"Money arrived: EUR {amount} from Bob" for amount in ("0.50", "1.00", "0.25")]
    wait_until(lambda: seen_all(payres))
    assert len(post.to(to)) == 3


def test_new_browser_password_and_key_are_told(payres: Instance, post: MailServer) -> None:
    to = "dora@mail.example"
    payres.create_wallet("dora", password=PASSWORD)
    with_address(payres, "dora", to)
    with signed_out(payres) as http:
        assert sign_in(http, "dora").status_code == 303
        assert sign_in(http, "dora").status_code == 303, "the browser is known"
    payres.write(lambda work: owners.store_password(work, "dora", "x"))
    wait_until(lambda: len(post.to(to)) == 2)
    assert [one["Subject"] for one in post.to(to)] == ["New sign-in: A browser", "Your password was changed"]


def test_who_gets_in_causes_no_alarm_and_who_does_not_causes_one(payres: Instance, post: MailServer) -> None:
    with with_codes(payres, "calm") as (_, app, _), signed_out(payres) as own, signed_out(payres) as thief:
        owner_id = with_address(payres, "calm", "calm@mail.example")

        def told() -> list[str]:
            found = "SELECT kind FROM mail WHERE owner_id = ? ORDER BY id"
            return [kind for (kind,) in payres.read(lambda work: work.execute(found, (owner_id,)).fetchall())]

        for n in range(3):  # step by step from two addresses, as with IPv6 and IPv4
            page = sign_in(own, "calm", address=f"2001:db8:{n}::1")
            answer = own.post("/account", data=hidden(page) | {"choice": "code", "code": app.next_code()})
            assert answer.status_code == 303
            assert told() == ["new_browser"], "once, although no browser is trusted"
        sign_in(thief, "calm")
        sign_in(thief, "calm")
        page = sign_in(own, "calm")
        assert send_code(own, page, app.next_code()).status_code == 303
        assert told() == ["new_browser", "half_sign_in"], "the owner withdraws the own alarm, and not the thief's"
        for _ in range(9):
            with signed_out(payres) as other:
                sign_in(other, "calm")
        assert len(told()) == MAX_NOTICES_OF_KIND, "at most three an hour, beside the one of the new browser"


def test_what_waits_for_the_address_before_is_not_added_to(payres: Instance, post: MailServer) -> None:
    owner_id = with_address(payres, "alice", "before@mail.example")
    for _ in range(MAX_NOTICES_OF_KIND):  # the last one waits
        notify(payres, owner_id)
    with_address(payres, "alice", "after@mail.example")
    notify(payres, owner_id)
    payres.clock.advance(3601)
    [told] = post.wait_for("after@mail.example")
    assert told["Subject"] == "Your password was changed"
    post.wait_for("before@mail.example", MAX_NOTICES_OF_KIND)
    assert "and 1 more" not in "".join(one["Subject"] for one in post.to("before@mail.example"))


def test_mail_that_cannot_be_written_stops_no_other_and_is_set_aside(payres: Instance, post: MailServer) -> None:
    lost, fine = with_address(payres, "bob", "bob@mail.example"), with_address(payres, "alice", "a@mail.example")
    notify(payres, lost, "kind that nobody has written")
    kinds = ("password", "codes_on", "codes_off", "recovery_codes", "keep_factors")
    for number, (kind, pause) in enumerate(zip(kinds, (*FAULT_PAUSES, 0), strict=True), 1):
        notify(payres, fine, kind)
        post.wait_for("a@mail.example", number)
        wait_until(lambda number=number: [one.faults for one in faults(payres)] == [number])  # type: ignore[misc]
        payres.clock.advance(pause / SECOND)
    [one] = faults(payres)
    assert (one.again_at, one.error) == (None, "KeyError: 'mail_kind that nobody has written'")
    notify(payres, lost)
    post.wait_for("bob@mail.example")


def faults(instance: Instance) -> Sequence[FaultRecord]:
    return instance.read(lambda tx: FAULTS.list(tx, "WHERE kind = 'mail'"))


def test_notices_of_one_owner_keep_no_other_owner_waiting(payres: Instance, post: MailServer) -> None:
    loud, other = with_address(payres, "bob", "bob@mail.example"), with_address(payres, "alice", "a@mail.example")
    address = payres.read(lambda tx: ADDRESSES.by_id(tx, loud))
    for _ in range(200):
        payres.write(lambda work: mail.insert_mail(work, address, "password", {}))
    notify(payres, other)
    post.wait_for("a@mail.example")
    assert len(post.to("bob@mail.example")) < 100


def test_what_comes_while_a_mail_is_sent_is_told_in_the_next_one(
    payres: Instance, post: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    to, comes = "alice@mail.example", [True]
    with_address(payres, "alice", to)
    send = MailWorker._send

    async def slow(self: MailWorker, message: Any) -> MailAnswer:
        if comes:
            comes.clear()
            await self._database.write(partial(wallets.deposit, wallet="alice", amount="2.00"))
            await self._database.write(tell_of_events)
            return MailAnswer("451 come again")
        return await send(self, message)

    monkeypatch.setattr(MailWorker, "_send", slow)
    payres.write(partial(wallets.deposit, wallet="alice", amount="1.00"))
    wait_until(lambda: mails(payres) != [] and has_tried(payres, 1))
    payres.clock.advance(61)
    assert post.wait_for(to)[0]["Subject"] == "Money arrived: USD 1.00 paid in by Harbour", "as when it was tried"
    payres.clock.advance(3601)
    assert post.wait_for(to, 2)[1]["Subject"] == "Money arrived: USD 2.00 paid in by Harbour"


def test_mail_that_may_have_been_taken_stays_as_it_is(
    payres: Instance, post: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    to, send = "alice@mail.example", MailWorker._send
    answers = [MailAnswer("its answer was lost", is_usable=False, is_unsure=True), MailAnswer("451 come again")]
    monkeypatch.setattr(MailWorker, "_send", lambda *given: _answer(answers.pop(0)) if answers else send(*given))
    with_address(payres, "alice", to)
    payres.write(partial(wallets.deposit, wallet="alice", amount="1.00"))
    wait_until(lambda: mails(payres) != [] and has_tried(payres, 1))
    payres.clock.advance(61)
    wait_until(lambda: has_tried(payres, 2))
    payres.write(partial(wallets.deposit, wallet="alice", amount="2.00"))
    wait_until(lambda: seen_all(payres))
    payres.clock.advance(3661)
    told = [str(one["Subject"]) for one in post.wait_for(to, 2)]
    assert told == [f"Money arrived: USD {amount}.00 paid in by Harbour" for amount in (1, 2)]


async def _answer(answer: MailAnswer) -> MailAnswer:
    return answer


def test_dead_server_leaves_sign_in_and_payments_alone(payres: Instance, post: MailServer) -> None:
    payres.create_wallet("alone", password=PASSWORD, deposit="9.00")
    with_address(payres, "alone", "alone@mail.example")
    with dead(payres), signed_out(payres) as http:
        assert sign_in(http, "alone").status_code == 303
        pay(payres, "alone", receiver_of(payres, 100))
        wait_until(lambda: any(one.attempts for one in mails(payres)))
        found = payres.read(lambda tx: mail.waiting(tx, tx.now))
        assert found[0] >= 1
        assert re.fullmatch(r"The connection to \S+:\d+ failed; check that it is up", str(found[1]))
    payres.clock.advance(61)
    post.wait_for("alone@mail.example")


@contextmanager
def dead(instance: Instance) -> Iterator[None]:
    """As if the mail server were not there."""
    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
        gone.close()
        patch.setattr("smtplib.SMTP.connect", _to(port))
        yield


def _to(port: int) -> Any:
    import smtplib

    connect = smtplib.SMTP.connect
    return lambda smtp, host, _: connect(smtp, host, port)


@pytest.mark.parametrize(
    ("answer", "is_final", "shown"),
    [("550 no such box", True, "550 no such box"), ("451 come again", False, "451 come again")],
)
def test_refused_recipient_is_given_up_or_tried_again(
    payres: Instance, post: MailServer, answer: str, is_final: bool, shown: str
) -> None:
    to = "erin@mail.example"
    owner_id = with_address(payres, "bob", to)
    post.refusals[to] = f"{answer} {to}"
    notify(payres, owner_id)
    wait_until(partial(has_tried, payres, 1))
    [one] = mails(payres)
    assert (one.send_at is None, one.sent_at, one.last_error) == (is_final, None, f"{shown} the address")
    post.refusals.clear()
    payres.clock.advance(PAUSES[0] // 1_000_000 + 1)
    if is_final:
        other = with_address(payres, "alice", "other@mail.example")
        notify(payres, other)
        post.wait_for("other@mail.example")
        assert not post.to(to)
    else:
        post.wait_for(to)
        wait_until(lambda: mails(payres)[0].sent_at is not None)


def test_refused_mail_does_not_keep_others_waiting_and_ends_after_days(payres: Instance, post: MailServer) -> None:
    post.refusals["full@mail.example"] = "452 full"
    full, fine = with_address(payres, "bob", "full@mail.example"), with_address(payres, "alice", "fine@mail.example")
    notify(payres, full)
    notify(payres, fine)
    post.wait_for("fine@mail.example")
    for tries, pause in enumerate(PAUSES, 1):
        wait_until(partial(has_tried, payres, tries))
        assert mails(payres)[0].send_at is not None
        payres.clock.advance(pause // 1_000_000 + 1)
    wait_until(lambda: mails(payres)[0].send_at is None)


def test_mute_server_is_left_in_time_and_the_mail_sent_later(payres: Instance, post: MailServer) -> None:
    owner_id = with_address(payres, "bob", "mute@mail.example")
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.MonkeyPatch.context() as patch:
        patch.setattr("smtplib.SMTP.connect", _to(mute.getsockname()[1]))
        notify(payres, owner_id)
        wait_until(partial(has_tried, payres, 1))
        assert "timed out" in str(mails(payres)[0].last_error)
    payres.clock.advance(61)
    post.wait_for("mute@mail.example")


def test_server_that_drips_is_left_in_time(payres: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SOON.format("MAIL"), 0.2)
    monkeypatch.setattr("payres.accounts.mail.SOCKET_SECONDS", 60)
    owner_id = with_address(payres, "bob", "drip@mail.example")
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.MonkeyPatch.context() as patch:
        patch.setattr("smtplib.SMTP.connect", _to(mute.getsockname()[1]))
        notify(payres, owner_id)
        wait_until(partial(has_tried, payres, 1))
    assert mails(payres)[0].last_error == "it has not taken the mail within 0.2 seconds"


def test_killed_between_sending_and_commit_repeats_it_once_with_the_same_id(tmp_path: Path, post: MailServer) -> None:
    to = "twice@mail.example"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("payres.accounts.mail.store_outcome", _die)
        patch.setattr(SOON.format("RETRY"), 3600)
        with run_instance(tmp_path / "payres.db", **post.settings) as instance:
            notify(instance, with_address(instance, "alice", to))
            post.wait_for(to)
    with run_again(tmp_path, post.settings) as again:
        again.clock.advance(FAULT_PAUSES[0] / SECOND)
        first, second = post.wait_for(to, 2)
        said = [re.sub(r"https?:\S+", "", text_of(one)) for one in (first, second)]  # the port is another
        assert (first["Message-ID"], said[0]) == (second["Message-ID"], said[1])
        notify(again, with_address(again, "alice", "next@mail.example"))
        post.wait_for("next@mail.example")
        assert len(post.to(to)) == 2


def _die(*_: Any, **__: Any) -> None:
    raise RuntimeError("killed")


@contextmanager
def run_again(folder: Path, settings: dict[str, Any]) -> Iterator[Instance]:
    """A server on the same database; the wallets that each new one has are there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Instance, "__init__", _bare)
        with run_instance(folder / "payres.db", **settings) as instance:
            yield instance


def _bare(self: Instance, server: Any, context: Any, clock: Any, requests: Any) -> None:
    self._server, self.context, self.clock, self._requests = server, context, clock, requests
    self._clients = []


def test_mail_that_is_off_keeps_no_events_and_tells_nothing_old_when_it_is_on(tmp_path: Path, post: MailServer) -> None:
    to = "later@mail.example"
    with run_instance(tmp_path / "payres.db") as off:
        owner_id = with_address(off, "alice", to)
        notify(off, owner_id)
        off.write(lambda work: wallets.deposit(work, "alice", "1.00"))
        assert mails(off) == []
        sequences = [*range(1, off.read(last_sequence) + 1)]
        assert off.read(lambda tx: mail.release_events(tx, sequences)) == sequences
    with run_again(tmp_path, post.settings) as on:
        on.write(lambda work: wallets.deposit(work, "alice", "2.00"))
        [one] = post.wait_for(to)
        assert one["Subject"].startswith("Money arrived: USD 2.00")
    with run_again(tmp_path, {}) as off:
        assert off.read(mail.cursor) is None
        assert all(one.send_at is None for one in mails(off))


@pytest.mark.parametrize(
    ("before", "endless"),
    [
        ([], b"220-welcome\r\n"),
        ([], b"220-"),  # a line that does not end
        ([b"220 mail.example\r\n"], b"250-SIZE\r\n"),
        ([b"220 mail.example\r\n", b"250-mail.example\r\n250 STARTTLS\r\n"], b"220-go on\r\n"),
    ],
)
def test_answer_of_a_mail_server_has_an_end(before: list[bytes], endless: bytes) -> None:
    sent = 0

    def serve() -> None:
        nonlocal sent
        connection, _ = listening.accept()
        with connection, suppress(OSError):  # it was closed
            for answer in before:
                connection.sendall(answer)
                connection.recv(4096)
            while True:
                sent += connection.send(endless * 1000)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        settings = MailSettings(
            smtp_host="127.0.0.1",
            smtp_port=listening.getsockname()[1],
            smtp_security="starttls",
            mail_from="wallet@pay.example",
        )
        message = envelope(
            Environment.of(Settings(groups=(settings,))), "alice@mail.example", Notice("A test", ["A test"]), 1
        )
        outcome = MailAttempt(settings, "pay.example").send(message)
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    assert (outcome.is_sent, outcome.is_usable) == (False, False)
    assert re.search("its answer is longer than 65536 bytes|Line too long", outcome.said)


def test_what_a_mail_server_says_is_safe_to_show_and_names_the_address_nowhere(
    payres: Instance, post: MailServer, caplog: pytest.LogCaptureFixture
) -> None:
    to = "carol@mail.example"
    payres.create_wallet("carol")
    post.refusals[to] = "451 <Carol@MAIL.example>\x1b[2J\tno"
    notify(payres, with_address(payres, "carol", to))
    wait_until(partial(has_tried, payres, 1))
    [error] = [one.last_error for one in mails(payres)]
    assert error == "451 <the address>[2J no"
    assert f"a mail was not taken (password): {error}" in caplog.text
    [seen] = [one.seen for one in payres.read(doctor.examine) if one.subject == "mail"]
    assert seen == f"mail is not sent: {error}; 1 waiting"


def test_purge_of_events_waits_for_the_cursor(tmp_path: Path, post: MailServer) -> None:
    month = 31 * 86400
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("payres.accounts.mail.MailWorker.run", _never)
        with run_instance(tmp_path / "payres.db", **post.settings) as instance:
            instance.write(lambda work: wallets.deposit(work, "alice", "1.00"))
            last = instance.read(last_sequence)
            instance.clock.advance(month)

            def purge(work: Work) -> int:
                delete_old_events(work, work.now, [mail.release_events])
                return len(work.execute("SELECT 1 FROM event WHERE sequence = ?", (last,)).fetchall())

            assert instance.write(purge) == 1
            instance.write(tell_of_events)
            assert mails(instance) == [], "what is a month old is not told"
            assert instance.write(purge) == 0


async def _never(self: object) -> None:
    """In place of the worker."""


def test_old_mails_are_deleted_with_the_next_ones(payres: Instance, post: MailServer) -> None:
    owner_id = with_address(payres, "alice", "old@mail.example")
    notify(payres, owner_id)
    post.wait_for("old@mail.example")
    wait_until(lambda: mails(payres)[0].sent_at is not None)
    payres.clock.advance(31 * 86400)
    notify(payres, owner_id)
    assert len(mails(payres)) == 1


def test_failed_payment_is_told(payres: Instance, post: MailServer) -> None:
    with_address(payres, "bob", "bob@mail.example", "es")
    payres.write(lambda work: end_sending(work, send_away(work, "bob", 1250), "Nothing has arrived for 30 seconds."))
    [one] = post.wait_for("bob@mail.example")
    assert one["Subject"] == "No pagado: USD 12,50 a elsewhere.example"
    assert "USD 12,50 a elsewhere.example no se han pagado: nadie respondió.\n" in text_of(one)


def test_refund_is_told_to_both_owners(payres: Instance, post: MailServer) -> None:
    payer, receiver = "alice@mail.example", "bob@mail.example"
    with_address(payres, "alice", payer)
    with_address(payres, "bob", receiver)
    pay(payres, "alice", receiver_of(payres, 500, "bob"))
    assert post.wait_for(receiver, 1)[0]["Subject"] == "Money arrived: USD 5.00 from Alice"
    [payment] = payres.read(lambda work: INCOMING.list(work, "WHERE received > 0"))

    def refund(work: Work, amount: str, reference: str, why: str | None = None) -> None:
        refunds.make(work, refunds.plan(work, refunds.WantedRefund(payment.id, reference, amount, why=why)))

    with pytest.raises(InvalidRequest, match="A reason has 1 to 140 printable characters"):
        payres.write(partial(refund, amount="2.00", reference="first", why="never\nsent"))
    payres.write(partial(refund, amount="2.00", reference="first", why="Order 2041 was never sent"))
    came = post.wait_for(payer, 1)[0]
    assert came["Subject"] == "USD 2.00 came back from Bob"
    assert re.match(r"Bob got USD 5\.00 from alice on \d+ \w+ \d+\. USD 2\.00 of it is back\.\n", text_of(came))
    assert "\nHarbour sent it back, and wrote: “Order 2041 was never sent”\nNo more mails about" in text_of(came)
    told = post.wait_for(receiver, 2)[1]
    assert told["Subject"] == "USD 2.00 was sent back to Alice"
    said = " ".join(text_of(told).split())
    assert re.match(r"Alice paid bob USD 5\.00 on \d+ \w+ \d+\. USD 2\.00 of it is sent back\. When: ", said)
    assert " Harbour did it, and wrote: “Order 2041 was never sent” Not right? Tell Harbour. -- " in said
    made = payres.read(lambda work: refunds.shown_refund(work, REFUNDS.list(work)[0]))
    assert made.why == "Order 2041 was never sent"
    payres.write(partial(refund, amount="1.00", reference="first again"))
    payres.write(partial(refund, amount="0.50", reference="second again"))
    wait_until(lambda: seen_all(payres))
    payres.clock.advance(3601)
    assert text_of(post.wait_for(payer, 2)[1]).startswith("USD 1.00 back from Bob\nUSD 0.50 back from Bob\n")


def test_refund_after_a_fee_tells_the_payer_what_left_and_what_arrived(payres: Instance, post: MailServer) -> None:
    with_address(payres, "alice", "alice@mail.example")
    payres.write(lambda work: assets.set_fee(work, "USD", 2, "0.65"))
    pay(payres, "alice", receiver_of(payres, 500, "bob"))
    [payment] = payres.read(lambda work: INCOMING.list(work, "WHERE received > 0"))
    payres.write(lambda work: refunds.make(work, refunds.plan(work, refunds.WantedRefund(payment.id, "fee", "5.00"))))
    said = " ".join(text_of(post.wait_for("alice@mail.example", 1)[0]).split())
    assert re.match(r"USD 5\.65 left alice on \d+ \w+ \d+, and Bob got USD 5\.00\. USD 5\.00 of it is back\. ", said)


def test_app_that_the_owner_allowed_is_told(payres: Instance, post: MailServer) -> None:
    payres.create_wallet("allows")
    with_address(payres, "allows", "allows@mail.example")
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": payres.wallet("allows")}
    url = payres.client.request_grant(item).json()["interact"]["redirect"]
    with OwnersBrowser(payres, "allows") as browser:
        fields = dict(re.findall(r'name="(csrf|shown)" value="([^"]+)"', browser.http.get(url).text))
        assert browser.http.post(url, data=fields | {"choice": "approve"}).status_code == 303
    [one] = post.wait_for("allows@mail.example", 1)
    assert one["Subject"] == "“Example Shop” may spend any amount"
    assert re.match(r"You allowed “Example Shop” \(\S+\) to pay from allows:\nany amount, to anyone it", text_of(one))
    assert re.search(r"\nWhen: .*\)\nNot you, or not any more\? This link stops it:\n", text_of(one)), text_of(one)


def test_app_that_an_operator_allowed_is_told(payres: Instance, post: MailServer) -> None:
    to = "apps@mail.example"
    payres.create_wallet("apps")
    owner_id = with_address(payres, "apps", to)
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": payres.wallet("apps")}
    url = payres.client.request_grant(item).json()["interact"]["redirect"]
    payres.write(lambda work: grants.approve(work, grants.named_grant(work, url), "by telephone"))
    [one] = post.wait_for(to)
    assert one["Subject"] == "Harbour allowed “Example Shop” for you"
    assert "\nany amount, to anyone it chooses, until you stop it.\nWhen: " in text_of(one)
    assert "\nHarbour wrote: “by telephone”\nNot wanted? This link stops it:\n" in text_of(one)
    payres.write(lambda work: mail.set_rates(work, owner_id, {"app": "off"}))
    notify(payres, owner_id, "app", app="Shop", host="shop.example")
    assert len(mails(payres)) == 1


@pytest.mark.parametrize("password", ["open sesame", "wrong"])
def test_starttls_and_password_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    ca, tls = privately_issued(tmp_path, "mail.example")
    file, server = tmp_path / "password", MailServer()
    file.write_text(f"{password}\n")
    monkeypatch.setattr("payres.accounts.mail.SOCKET_SECONDS", 60)
    with server.running("127.0.0.2", tls, authenticator=server.authenticate, auth_required=True):
        given = server.settings | {"smtp_user": "payres", "smtp_password_file": str(file)}
        untrusted = attempt(given)
        assert "is not trusted: " in untrusted.said
        monkeypatch.setenv("SSL_CERT_FILE", str(ca))
        assert "Must issue a STARTTLS command first" in attempt(given | {"smtp_security": "none", "smtp_user": ""}).said
        outcome = attempt(given)
        assert (outcome.is_sent, outcome.is_usable) == ((password == "open sesame"),) * 2, outcome
        assert {one.password for one in server.signed_in} == {password.encode()}
        assert len(server.received) == outcome.is_sent


def test_starttls_that_is_not_offered_sends_nothing(post: MailServer) -> None:
    outcome = attempt(post.settings | {"smtp_security": "starttls"})
    assert (outcome.is_sent, outcome.is_usable) == (False, False)
    assert "STARTTLS" in outcome.said
    assert not post.received


def attempt(settings: dict[str, Any]) -> Any:
    from payres.core.store.work import Environment

    environment = Environment.of(settings_with(settings))
    notice = Notice("A test", ["It works."])
    message = envelope(environment, "alice@mail.example", notice, 0)
    return MailAttempt(environment.settings.of(MailSettings), "pay.example").send(message)


@pytest.mark.parametrize("text", ["a\nBcc: eve", "a\r\n\r\nbody"])
def test_header_that_would_be_two_is_refused(payres: Instance, post: MailServer, text: str) -> None:
    owner_id = with_address(payres, "alice", "alice@mail.example")
    notify(payres, owner_id, "grant_by_operator", app=text, host="shop.example")
    wait_until(lambda: mails(payres)[0].send_at is None)
    assert "it cannot be written" in str(mails(payres)[0].last_error)
    assert not post.received


@pytest.mark.parametrize("name", ["=?utf-8?q?x=0d=0aBcc:_eve=0d=0a=0d=0aLies?=", "=?utf-8?b?DQo=?="])
def test_name_that_looks_encoded_is_shown_as_it_is(payres: Instance, post: MailServer, name: str) -> None:
    to = "encoded@mail.example"
    payres.create_wallet("encoded")
    payres.create_wallet("eve", name=name, deposit="1.00")
    notify(payres, with_address(payres, "encoded", to), "grant_by_operator", app=name, host="shop.example")
    pay(payres, "eve", receiver_of(payres, 100, "encoded"))
    for told in post.wait_for(to, 2):
        assert name.replace("=?", "= ?") in told["Subject"]
        assert told["Bcc"] is None
        assert told["Subject"].isascii() or "Harbour" in told["Subject"]


def test_address_of_one_owner_gets_nothing_of_another(payres: Instance, post: MailServer) -> None:
    with_address(payres, "alice", "alice@mail.example")
    payres.write(lambda work: wallets.deposit(work, "bob", "1.00"))
    payres.write(lambda work: wallets.deposit(work, "alice", "2.00"))
    post.wait_for("alice@mail.example")
    assert [one["To"] for one in post.received] == ["alice@mail.example"]
