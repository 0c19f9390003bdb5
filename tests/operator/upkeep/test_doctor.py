import re
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from payres.accounts.store import mail
from payres.accounts.store.mail import AddressRecord
from payres.agenda.store.agenda import FAULTS, FaultRecord
from payres.core.payments import ledger
from payres.core.payments.quotes import rate_between
from payres.core.process.settings import Settings
from payres.core.protocol.clock import DAY, HOUR, SECOND, format_time
from payres.core.protocol.errors import NoRate
from payres.core.protocol.limits import MAX_MISSING_RATES
from payres.core.store import audit
from payres.core.store.connections import connect_writer
from payres.core.store.database import Database
from payres.core.store.rows import number
from payres.core.store.work import Environment, Work
from payres.interledger.clearing import ABOVE_LIMIT, SHORT_THERE
from payres.operator import assets, wallets, webhooks
from payres.operator.limits import MIN_FREE_BYTES
from payres.operator.store import missing_rates
from payres.operator.store.invariants import note_check
from payres.operator.upkeep import doctor
from payres.operator.upkeep.doctor import Diagnosis, examine
from payres.operator.upkeep.missing_rates import store_missing_rates
from payres.settings import settings_with
from payres.webhooks.store.webhooks import WEBHOOKS
from tests.people.mail_server import MailServer
from tests.works import add_usd_peer, work_at

NOW = 1_700_000_000_000_000
LOCAL = "http://127.0.0.1:8080"


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    """A unit of work on a database that was backed up a day ago."""
    path = tmp_path / "payres.db"
    with closing(connect_writer(str(path))) as connection:
        audit.record(work_at(connection, NOW - DAY), "database.backup", "/backups/payres.db")
        yield work_at(connection, NOW, Settings(database=str(path)))


def found(work: Work, base_url: str = "https://pay.example.com", **settings: Any) -> dict[str, Diagnosis]:
    chosen = settings_with({"database": work.settings.database, "base_url": base_url, **settings})
    return {finding.subject: finding for finding in examine(work_at(work, NOW, chosen))}


def broken(work: Work, *base_url: str, **settings: Any) -> set[str]:
    return {subject for subject, finding in found(work, *base_url, **settings).items() if finding.fix is not None}


def test_nothing_is_wrong_with_a_new_database(work: Work) -> None:
    assert broken(work) == set()
    assert found(work).keys() == {"permissions", "disk", "write-ahead log", "backup", "ledger", "base URL", "mail"}


def test_mail_that_waits_with_an_error_is_a_problem(work: Work) -> None:
    wallets.create_wallet(work, "alice", "USD", 2, None, None)
    address, on = (
        AddressRecord(1, "alice@mail.example", 1, "en", "UTC"),
        {"smtp_host": "mail.example", "mail_from": "wallet@pay.example"},
    )
    assert "it is off" in found(work)["mail"].seen
    assert found(work, **on)["mail"].seen == "0 waiting"
    mail.insert_mail(work, address, "password", {}, "a")
    mail.insert_mail(work, address, "password", {}, "b", NOW + DAY)
    assert (found(work, **on)["mail"].seen, "mail" in broken(work, **on)) == ("1 waiting", False)
    sent = {"attempts": 1, "last_error": "535 wrong password"}
    mail.change_mail(work, mail.MAILS.list(work, "WHERE key = 'a'")[0].id, send_at=NOW + 60, **sent)
    assert found(work, **on)["mail"].seen == "mail is not sent: 535 wrong password; 1 waiting"
    assert "mail" in broken(work, **on)


def test_mail_server_is_asked_whether_it_takes_mail_and_gets_none(work: Work, tmp_path: Path) -> None:
    def seen(**settings: Any) -> list[tuple[str, bool]]:
        chosen = work_at(work, NOW, settings_with({"database": work.settings.database, **settings}))
        return [(one.seen, one.fix is not None) for one in doctor.ask(doctor.others(chosen)) if one.subject == "mail"]

    password = tmp_path / "password"
    password.write_text("wrong")
    with MailServer().running() as post:
        assert seen(**post.settings) == [("127.0.0.1 takes mail", False)]
        [(words, is_wrong)] = seen(**post.settings, smtp_user="us", smtp_password_file=str(password))
        assert (words.startswith("mail is not sent: "), is_wrong, post.received) == (True, True, [])
    gone = "mail is not sent: The connection to 127.0.0.1:1 failed; check that it is up (127.0.0.1)"
    assert seen(**(post.settings | {"smtp_port": 1})) == [(gone, True)]
    password.unlink()
    with MailServer().running() as post:
        [(words, is_wrong)] = seen(**post.settings, smtp_user="us", smtp_password_file=str(password))
        assert words == f"mail is not sent: {password} cannot be read: No such file or directory (127.0.0.1)"
    assert seen() == []


def take_liquidity(work: Work) -> None:
    assets.deposit_liquidity(work, "USD", 2, "100.00")
    wallet = wallets.create_wallet(work, "alice", "USD", 2, None, None)
    liquidity = ledger.operator_account(work, wallet.asset_id, "liquidity")
    ledger.transfer(work, liquidity, wallet.account_id, 91_00, "exchange")


def late_mail(work: Work, is_aside: bool) -> None:
    wallets.create_wallet(work, "alice", "USD", 2, None, None)
    mail.insert_mail(work, AddressRecord(1, "a@mail.example", 1, "en", "UTC"), "test", {}, "late", NOW - HOUR)
    if is_aside:
        label = mail.MAILS.list(work, "")[0].id
        FAULTS.insert(work, FaultRecord("mail", label, 1, 5, NOW, None, NOW - HOUR, "KeyError: 'x'"))


def peer(sql: str) -> Callable[[Work], object]:
    return lambda work: (add_usd_peer(work, "bank", "10.00"), work.execute(sql))


def webhook(values: str) -> Callable[[Work], object]:
    return lambda work: (
        webhooks.add(work, "https://shop.example/payres"),
        work.execute(f"UPDATE webhook SET {values}"),
    )


@pytest.mark.parametrize(
    ("change", "subject", "words"),
    [
        (lambda work: Path(work.settings.database).chmod(0o640), "permissions", "chmod 600"),
        (lambda work: work.execute("DELETE FROM audit"), "backup", "no backup was made"),
        (take_liquidity, "liquidity USD", "little liquidity is left: USD 9.00"),
        (webhook("last_error = 'It was answered with 500'"), "webhook https://shop.example/payres", "with 500"),
        (webhook("state = 'disabled'"), "webhook https://shop.example/payres", "410"),
        *(
            (peer(f"UPDATE account SET {used} WHERE kind = 'peer'"), "peer bank", words)
            for used, words in (
                (
                    "balance = -900",
                    "peer bank owes 90 % of its credit: USD 9.00 of 10.00. At the limit, payments from there stop",
                ),
                ("balance = -500, held = 500", "USD 10.00 of 10.00"),
                ("balance = -955", "Let it pay and record that (`payres peer deposit bank AMOUNT`)"),
            )
        ),
        *(
            (peer(f"UPDATE peer SET last_error = '{error}', last_error_at = {NOW}"), "peer bank", words)
            for error, words in (
                (ABOVE_LIMIT, "would owe more than its credit limit Let it pay and record that"),
                (SHORT_THERE, "or it lacks liquidity Pay it and record that (`payres peer withdraw bank AMOUNT`)"),
            )
        ),
        (peer(f"UPDATE peer SET last_error = 'No answer', last_error_at = {NOW}"), "peer bank", "No answer"),
        (partial(late_mail, is_aside=False), "due work", f"due for long: since {format_time(NOW - HOUR)}"),
        (
            partial(late_mail, is_aside=True),
            "due work",
            "1 thing is set aside: after 5 faults of payres `payres",
        ),
        (lambda work: note_check(work, NOW, "balances"), "ledger", "its invariant `balances` did not hold"),
    ],
)
def test_what_is_wrong_is_found(work: Work, change: Callable[[Work], object], subject: str, words: str) -> None:
    change(work)
    assert broken(work) == {subject}
    assert words in f"{found(work)[subject].seen} {found(work)[subject].fix}"


def test_credit_that_runs_out_is_a_warning_with_the_page_of_the_peer(work: Work) -> None:
    peer("UPDATE account SET balance = -899 WHERE kind = 'peer'")(work)
    assert broken(work) == set()
    work.execute("UPDATE account SET balance = -900 WHERE kind = 'peer'")
    finding = found(work)["peer bank"]
    assert (finding.warning, finding.page) == (True, ("the page of the peer", "peers", "bank"))


def test_page_of_a_finding_stands_for_a_command(work: Work) -> None:
    peer(f"UPDATE peer SET last_error = 'No answer', last_error_at = {NOW}")(work)
    webhook("last_error = 'It was answered with 500'")(work)
    paged = {subject: one for subject, one in found(work).items() if one.page is not None}
    [hook] = WEBHOOKS.list(work)
    assert {one.page[1:] for one in paged.values() if one.page} == {("peers", "bank"), ("webhooks", hook.id)}
    assert all(one.fix is not None and one.fix.split("`")[1].startswith("payres ") for one in paged.values())


@pytest.mark.parametrize("values", ["last_error = NULL", "state = 'paused', last_error = 'It was answered with 500'"])
def test_webhooks_and_peers_that_are_well_need_nothing(work: Work, values: str) -> None:
    webhook(values)(work)
    add_usd_peer(work, "bank", "10.00")
    assets.deposit_liquidity(work, "USD", 2, "100.00")
    assert broken(work) == set()


@pytest.mark.parametrize(("name", "figure"), [("free_bytes", 2 * MIN_FREE_BYTES), ("log_bytes", 2**30)])
def test_disk_that_fills_up(work: Work, monkeypatch: pytest.MonkeyPatch, name: str, figure: int) -> None:
    monkeypatch.setattr(doctor, name, lambda _: figure)
    assert broken(work) == {"disk" if name == "free_bytes" else "write-ahead log"}


def test_backup_that_is_old_or_missing(work: Work) -> None:
    work.execute("UPDATE audit SET created_at = created_at - ?", (DAY,))
    assert broken(work) == set()
    work.execute("UPDATE audit SET created_at = created_at - 1")
    assert broken(work) == {"backup"}
    work.execute("DELETE FROM audit")
    assert broken(work, LOCAL) == set(), "there is nothing to lose yet"
    note_check(work, NOW)
    deposit(work, NOW - DAY)
    assert broken(work, LOCAL) == set()
    work.execute("UPDATE transfer SET created_at = created_at - ?", (2 * DAY,))
    assert broken(work, LOCAL) == {"backup"}


def test_backup_and_check_of_a_clock_that_was_ahead_hide_nothing(work: Work) -> None:
    ahead = work_at(work, NOW + 30 * DAY)
    audit.record(ahead, "database.backup", "/backups/payres.db")
    assert broken(work) == set(), "there is one of the right time"
    work.execute("DELETE FROM audit WHERE created_at <= ?", (NOW,))
    assert broken(work) == {"backup"}
    note_check(ahead, ahead.now)
    note_check(work, NOW, "balances")
    assert "ledger" in broken(work)


def test_scheduled_backup_that_is_late(work: Work, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"backup_directory": str(tmp_path), "backup_every": 12 * 3600}
    assert broken(work, **settings) == set()
    work.execute("UPDATE audit SET created_at = created_at - 1")
    assert broken(work, **settings) == {"backup"}
    assert str(found(work, **settings)["backup"].fix).startswith("backup_every says each 43200 seconds")


def test_directory_for_backups_that_is_missing(work: Work, tmp_path: Path) -> None:
    assert broken(work, backup_directory=str(tmp_path)) == set()
    for wrong in (tmp_path / "missing", work.settings.database):
        assert broken(work, backup_directory=str(wrong)) == {"backup_directory"}


def deposit(work: Work, now: int) -> None:
    wallets.create_wallet(work, "alice", "USD", 2, None, None)
    wallets.deposit(work_at(work, now), "alice", "10.00")


def test_ledger_that_was_not_checked_for_long(work: Work) -> None:
    deposit(work, NOW - DAY)
    assert broken(work) == set()
    work.execute("UPDATE transfer SET created_at = created_at - 1")
    assert "`payres ledger check`" in str(found(work)["ledger"].fix)
    note_check(work, NOW - DAY + 1)
    assert broken(work) == set()
    work.execute("UPDATE ledger_check SET checked_at = checked_at - 1")
    assert broken(work) == {"ledger"}


def test_settings_file_with_a_secret_is_for_nobody_else(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path(work.settings.database).with_name("payres.toml")
    file.touch(mode=0o640)
    monkeypatch.setenv("PAYRES_CONFIG", str(file))
    assert broken(work) == set()
    assert broken(work, metrics_token="secret") == {"settings file"}
    file.chmod(0o600)
    assert broken(work, metrics_token="secret") == set()


def test_settings_that_are_not_for_the_public(work: Work) -> None:
    assert broken(work, "http://pay.example.com") == {"base URL"}
    assert broken(work, allow_private_hosts=True) == {"allow_private_hosts"}
    assert broken(work, LOCAL, allow_private_hosts=True) == set()


def test_service_that_answers_no_rates_is_told_before_somebody_wants_one(work: Work) -> None:
    service = {"rates_url": "https://rates.example/"}
    assert "rates service" not in found(work, **service), "with one currency it is not asked"
    for code in ("EUR", "USD"):
        wallets.create_wallet(work, code.lower(), code, 2, None, None)
    assert found(work, **service)["rates service"].warning
    assert "rates service" not in found(work)
    work.execute("INSERT INTO exchange_rate VALUES ('USD', 'EUR', '0.9', ?, ?)", (NOW, NOW + SECOND))
    assert "rates service" not in found(work, **service)


def test_rate_is_missing_where_somebody_wanted_it(work: Work) -> None:
    for code in ("EUR", "ACME/B", "USD", "CHF"):
        wallets.create_wallet(work, code[:3].lower(), code, 2, None, None)
    assets.set_rate(work, "USD", "EUR", "0.9")
    assert broken(work) == set()
    with suppress(NoRate):
        rate_between(work, "ACME/B", "EUR")
    missing_rates.note_missing_rates(work, work.environment.metrics.missing_rates)
    work.execute("INSERT INTO exchange_rate VALUES ('USD', 'CHF', '0.8', 0, 1)")
    assert broken(work) == {"rate ACME/B/EUR", "rate CHF/USD"}
    finding = found(work)["rate ACME/B/EUR"]
    assert finding.seen == "no rate from ACME/B to EUR: wanted once"
    assert (finding.warning, finding.page) == (True, ("here", "rates", "ACME/B", "EUR"))
    work.execute("UPDATE missing_rate SET asked_at = asked_at - ?", (7 * DAY - 1,))
    work.execute("DELETE FROM exchange_rate WHERE counter_code = 'CHF'")
    assert broken(work) == {"rate ACME/B/EUR"}
    work.execute("UPDATE missing_rate SET asked_at = asked_at - 1")
    assert broken(work) == set()


def test_currencies_that_clients_make_up_are_few_and_push_out_no_others(work: Work) -> None:
    for code in ("USD", "ZWG"):
        wallets.create_wallet(work, code.lower(), code, 2, None, None)
    made_up = [f"A{n:02}" for n in range(3 * MAX_MISSING_RATES)]
    for code in (*made_up, "ZWG", *made_up):
        with suppress(NoRate):
            rate_between(work, "USD", code)
    assert len(work.environment.metrics.missing_rates) == MAX_MISSING_RATES + 1
    later = work_at(work, work.now + DAY, work.settings)
    missing_rates.note_missing_rates(
        later, [*work.environment.metrics.missing_rates, *(("USD", code) for code in made_up)]
    )
    work.environment.metrics.missing_rates.clear()
    stored = [one[:2] for one in missing_rates.missing_rates(later)]
    assert (len(stored), ("USD", "ZWG") in stored) == (MAX_MISSING_RATES, True)
    alarm, note = [one for one in examine(later) if one.subject in {"rate USD/ZWG", "rates elsewhere"}]
    assert alarm.warning
    assert note.fix is None, "a stranger raises no alarm"
    assert re.fullmatch(rf"no valid rate for A../USD(, A../USD){{7}} and {MAX_MISSING_RATES - 9} others: .*", note.seen)
    for now in (work.now, later.now + 7 * DAY + 1):  # the clock was ahead; and a week later
        missing_rates.note_missing_rates(work_at(work, now), [])
        assert number(work, "SELECT count(*) FROM missing_rate") == 0
        missing_rates.note_missing_rates(later, [("USD", "ZWG")])


def test_rate_that_was_set_is_not_missing(work: Work) -> None:
    for code in ("USD", "EUR"):
        wallets.create_wallet(work, code.lower(), code, 2, None, None)
    there, back = ("USD", "EUR"), ("EUR", "USD")
    for days, wanted in ((8, there), (6, back), (2, back), (1, back), (0, there)):
        missing_rates.note_missing_rates(work_at(work, NOW - days * DAY), [wanted])
    finding = found(work)["rate EUR/USD"]
    assert (finding.seen, finding.since) == ("no rate from EUR to USD: wanted 4 times", NOW - 6 * DAY)
    assets.set_rate(work, "USD", "EUR", "0.9")
    assert broken(work) == set()


async def test_server_stores_which_rates_were_missing(tmp_path: Path) -> None:
    environment = Environment.of(Settings())
    database = await Database.open(str(tmp_path / "server.db"), environment)
    try:
        with suppress(NoRate):
            await database.write(lambda work: rate_between(work, "USD", "EUR"))
        assert await database.read(lambda work: missing_rates.missing_rates(work)) == [], "as commands say"
        await store_missing_rates(database, environment.metrics)
        assert not environment.metrics.missing_rates
        [stored] = await database.read(lambda work: missing_rates.missing_rates(work))
        assert (stored.base, stored.counter, stored.times) == ("USD", "EUR", 1)
    finally:
        await database.close()
