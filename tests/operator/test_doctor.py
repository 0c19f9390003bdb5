from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from payres import ledger
from payres.clock import DAY
from payres.limits import MIN_FREE_BYTES
from payres.operator import assets, doctor, wallets, webhooks
from payres.operator.doctor import Finding, examine
from payres.settings import Settings
from payres.store import audit
from payres.store.connections import connect_writer
from payres.store.status import note_check
from payres.store.work import Transaction
from tests.works import add_usd_peer, work_at

NOW = 1_700_000_000_000_000
PUBLIC = "https://pay.example.com"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[tuple[Path, Transaction]]:
    path = tmp_path / "payres.db"
    connection = connect_writer(str(path))
    audit.record(work_at(connection, NOW - DAY), "database.backup", "/backups/payres.db")
    yield path, connection
    connection.close()


def found(database: tuple[Path, Transaction], base_url: str = PUBLIC, **settings: Any) -> dict[str, Finding]:
    path, connection = database
    work = work_at(connection, NOW, Settings(database=str(path), base_url=base_url, **settings))
    return {finding.subject: finding for finding in examine(work)}


def broken(findings: dict[str, Finding]) -> set[str]:
    return {subject for subject, finding in findings.items() if finding.fix is not None}


def test_nothing_is_wrong_with_a_new_database(database: tuple[Path, Transaction]) -> None:
    findings = found(database)
    assert broken(findings) == set()
    assert findings.keys() == {"permissions", "disk", "write-ahead log", "backup", "ledger", "base URL"}


def test_file_that_others_can_read(database: tuple[Path, Transaction]) -> None:
    database[0].chmod(0o640)
    assert "chmod 600" in str(found(database)["permissions"].fix)


@pytest.mark.parametrize(("name", "figure"), [("free_bytes", 2 * MIN_FREE_BYTES), ("log_bytes", 2**30)])
def test_disk_that_fills_up(
    database: tuple[Path, Transaction], monkeypatch: pytest.MonkeyPatch, name: str, figure: int
) -> None:
    monkeypatch.setattr(doctor, name, lambda _: figure)
    assert broken(found(database)) == {"disk" if name == "free_bytes" else "write-ahead log"}


def test_backup_that_is_old_or_missing(database: tuple[Path, Transaction]) -> None:
    database[1].execute("UPDATE audit SET created_at = created_at - ?", (2 * DAY,))
    assert broken(found(database)) == {"backup"}
    database[1].execute("DELETE FROM audit")
    assert broken(found(database)) == {"backup"}
    local = "http://127.0.0.1:8080"
    assert broken(found(database, local)) == set(), "there is nothing to lose yet"
    note_check(database[1], NOW)
    deposit(database, NOW - DAY)
    assert broken(found(database, local)) == set()
    database[1].execute("UPDATE transfer SET created_at = created_at - ?", (2 * DAY,))
    assert broken(found(database, local)) == {"backup"}


def test_directory_for_backups_that_is_missing(database: tuple[Path, Transaction], tmp_path: Path) -> None:
    assert broken(found(database, backup_directory=str(tmp_path))) == set()
    for wrong in (tmp_path / "missing", database[0]):
        assert broken(found(database, backup_directory=str(wrong))) == {"backup_directory"}


def deposit(database: tuple[Path, Transaction], now: int) -> None:
    work = work_at(database[1], now)
    wallets.create_wallet(work, "alice", "USD", 2, None, None)
    wallets.deposit(work, "alice", "10.00")


def test_ledger_that_was_not_checked_for_long(database: tuple[Path, Transaction]) -> None:
    deposit(database, NOW - DAY)
    assert broken(found(database)) == set()
    database[1].execute("UPDATE transfer SET created_at = created_at - 1")
    assert "`payres ledger check`" in str(found(database)["ledger"].fix)
    note_check(database[1], NOW - DAY)
    assert broken(found(database)) == set()
    database[1].execute("UPDATE ledger_check SET checked_at = checked_at - 1")
    assert broken(found(database)) == {"ledger"}


def test_liquidity_of_which_little_is_left(database: tuple[Path, Transaction]) -> None:
    work = work_at(database[1], NOW)
    assets.deposit_liquidity(work, "USD", 2, "100.00")
    assert broken(found(database)) == set()
    wallet = wallets.create_wallet(work, "alice", "USD", 2, None, None)
    liquidity = ledger.operator_account(work, wallet.asset_id, "liquidity")
    ledger.transfer(work, liquidity, wallet.account_id, 91_00, "exchange")
    assert found(database)["liquidity USD"].seen == "9.00 is left, little of what there was"


def test_webhook_that_fails_or_has_gone(database: tuple[Path, Transaction]) -> None:
    webhooks.add(work_at(database[1], NOW), "https://shop.example/payres")
    assert broken(found(database)) == set()
    database[1].execute("UPDATE webhook SET last_error = 'It was answered with 500'")
    assert "It was answered with 500" in found(database)["webhook https://shop.example/payres"].seen
    database[1].execute("UPDATE webhook SET state = 'disabled'")
    assert "410" in found(database)["webhook https://shop.example/payres"].seen


def test_settings_that_are_not_for_the_public(database: tuple[Path, Transaction]) -> None:
    assert broken(found(database, "http://pay.example.com")) == {"base URL"}
    assert broken(found(database, allow_private_hosts=True)) == {"allow_private_hosts"}
    assert broken(found(database, "http://127.0.0.1:8080", allow_private_hosts=True)) == set()


def test_currencies_without_a_rate(database: tuple[Path, Transaction]) -> None:
    work = work_at(database[1], NOW)
    for code in ("EUR", "ACME/B", "USD"):
        wallets.create_wallet(work, code[:3].lower(), code, 2, None, None)
    assets.set_rate(work, "USD", "EUR", "0.9")
    assert found(database)["exchange rates"].seen == "no valid rate for ACME/B/EUR, ACME/B/USD"
    assets.set_rate(work, "EUR", "ACME/B", "0.9")
    assets.set_rate(work, "ACME/B", "USD", "1.2")
    assert broken(found(database)) == set()


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (lambda tx: tx.execute("UPDATE account SET balance = -950 WHERE kind = 'peer'"), "it owes 9.50 of 10.00 USD"),
        (lambda tx: tx.execute(f"UPDATE peer SET last_error = 'No answer', last_error_at = {NOW}"), "No answer"),
    ],
)
def test_peer_that_needs_attention(
    database: tuple[Path, Transaction], change: Callable[[Transaction], object], seen: str
) -> None:
    add_usd_peer(work_at(database[1], NOW), "bank", "10.00")
    assert broken(found(database)) == set()
    change(database[1])
    assert seen in found(database)["peer bank"].seen
    assert broken(found(database)) == {"peer bank"}
