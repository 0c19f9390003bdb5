"""Exports over the operator's API: their content, and readers that stop, disconnect, or lose their access."""

import asyncio
import csv
import http.client
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from payres.cli import main
from payres.core.http import observation
from payres.core.http.protocol import HttpProtocol
from payres.core.store.work import Work
from payres.html import streams
from payres.html.exports import Export, Format
from payres.html.limits import EXPORT_SECONDS
from payres.operator import wallets
from payres.operator.api_keys import revoke_api_key
from payres.operator.limits import MAX_EXPORTS, MAX_EXPORTS_OF_CALLER
from payres.operator.services import operator_of
from payres.people.statements import BATCH_TRANSFERS
from tests.helpers import TIMEOUT, usd, wait_until
from tests.instance import Instance
from tests.operator.programs import BASE, NewProgram, Program

MANY = 30_000  # transfers of the wallet `rich`, of one cent each


def make_many(work: Work) -> None:
    wallets.create_wallet(work, "rich", "USD", 2, None, None)
    wallets.deposit(work, "rich", "0.01")
    debit, credit = work.execute(
        "SELECT debit_account_id, credit_account_id FROM transfer ORDER BY id DESC LIMIT 1"
    ).fetchone()
    work.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
        " INSERT INTO transfer (debit_account_id, credit_account_id, amount, kind, created_at)"
        " SELECT ?, ?, 1, 'deposit', ? FROM n",
        (MANY - 1, debit, credit, work.now),
    )
    work.execute(
        "INSERT INTO movement (id, account_id, transfer_id, created_at)"
        " SELECT printf('many-%d', id), credit_account_id, id, created_at FROM transfer"
        " WHERE kind = 'deposit' AND id NOT IN (SELECT transfer_id FROM movement)"
    )
    work.execute("UPDATE account SET balance = balance - ? WHERE id = ?", (MANY - 1, debit))
    work.execute("UPDATE account SET balance = balance + ? WHERE id = ?", (MANY - 1, credit))


@pytest.fixture(scope="module", autouse=True)
def _many(payres: Instance) -> None:
    """An export does not fit between the server and a test that stops reading."""
    payres.write(make_many)
    payres._server._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Export]:
    """Grows with each batch that an export of transfers reads."""
    taken: list[Export] = []
    step = Export.step

    def counted(export: Export, work: Work) -> Any:
        taken.append(export)
        return step(export, work)

    monkeypatch.setattr(Export, "step", counted)
    return taken


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The reasons in the log of requests for answers that ended early."""
    why, reasons = observation._why, list[str]()

    def noted(error: BaseException) -> str:
        reasons.append(why(error))
        return reasons[-1]

    monkeypatch.setattr(observation, "_why", noted)
    return reasons


@contextmanager
def download(program: Program, path: str) -> Iterator[http.client.HTTPResponse]:
    """An answer that is read no faster than the test does."""
    parts = urlsplit(program.instance.base_url)
    with closing(http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=TIMEOUT)) as connection:
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.request("GET", f"{BASE}{path}", headers={"Authorization": f"Bearer {program.key}"})
        with connection.getresponse() as answer:
            assert answer.status == 200
            yield answer


def connections(payres: Instance) -> list[HttpProtocol]:
    return [one for one in [*payres._server.server_state.connections] if isinstance(one, HttpProtocol)]


def stuck(payres: Instance) -> Callable[[], bool]:
    """Whether a client does not read its answer."""
    return lambda: any(one.flow.write_paused for one in connections(payres))


def is_free(payres: Instance) -> bool:
    """Whether no export holds a slot."""
    return not operator_of(payres.context).export_slots._levels


def command(payres: Instance, *arguments: str) -> str:
    settings = {"PAYRES_BASE_URL": payres.base_url, "PAYRES_DATABASE": payres.context.settings.database}
    result = CliRunner().invoke(main, arguments, env=settings)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_exports_are_what_the_command_exports(payres: Instance, program: Program, form: Format) -> None:
    payres.write(lambda work: wallets.deposit(work, "alice", "1.00"))
    bill = payres.client.create_incoming_payment(payres.wallet("bob"))
    payres.client.pay(payres.wallet("alice"), bill["id"], debitAmount=usd(70))
    for path, arguments in (
        ("/exports/payments", ("payments",)),
        ("/exports/ledger?wallet=alice", ("ledger", "--wallet", "alice")),
        ("/wallets/bob/statement?to=2100-01-01", ("statement", "--wallet", "bob", "--to", "2100-01-01")),
    ):
        answer = program.ask("GET", f"{path}{'&' if '?' in path else '?'}format={form}")
        printed = command(payres, "export", *arguments, "--format", form)
        if arguments[0] == "statement" and form == "csv":  # its last line has the time at which it was made
            assert answer.text.splitlines()[:-1] == printed.splitlines()[:-1]
        elif arguments[0] != "statement":
            assert answer.text == printed
        assert len(answer.text.splitlines()) > 1
        assert (
            answer.headers["content-type"].partition(";")[0] == {"csv": "text/csv", "jsonl": "application/jsonl"}[form]
        )
    name = answer.headers["content-disposition"]
    assert name == f'attachment; filename="statement-bob.{form}"'


@pytest.mark.parametrize(
    ("path", "status", "field"),
    [
        ("/exports/payments?from=2026-02-01&to=2026-01-01", 400, "from"),
        ("/exports/payments?format=xml", 400, "format"),
        ("/exports/payments?first=10", 400, None),
        ("/wallets/alice/statement?wallet=bob", 400, None),
        ("/exports/ledger?wallet=nobody", 404, None),
        ("/exports/payments?wallet=nobody", 404, None),
        ("/wallets/nobody/statement", 404, None),
    ],
)
def test_what_cannot_be_exported_is_an_error_before_the_first_byte(
    payres: Instance, program: Program, path: str, status: int, field: str | None
) -> None:
    answer = program.ask("GET", path)
    assert answer.status_code == status, answer.text
    if field is not None:
        assert answer.json()["error"]["details"]["field"] == field
    assert is_free(payres)


def test_each_needs_its_scope(new_program: NewProgram) -> None:
    reader = new_program("payments:read")
    assert reader.ask("GET", "/exports/payments").status_code == 200
    assert reader.ask("GET", "/exports/ledger").status_code == 403
    assert reader.ask("GET", "/wallets/bob/statement").status_code == 403


def test_head_reads_one_batch_and_ends(payres: Instance, program: Program, steps: list[Export]) -> None:
    answer = program.ask("HEAD", "/exports/ledger")
    assert (answer.status_code, answer.content, len(steps)) == (200, b"", 1)
    wait_until(lambda: is_free(payres))


def test_reader_that_stops_holds_nothing_up_and_gets_a_statement_that_adds_up(
    payres: Instance, program: Program, steps: list[Export]
) -> None:
    before = program.get("/wallets/rich")["balance"]
    with download(program, "/wallets/rich/statement") as answer:
        wait_until(stuck(payres))
        assert max(one.buffered_bytes() for one in connections(payres)) < 2 * streams.PIECE_BYTES
        assert all(one.waiting == 0 for one in payres.context.database._examiners)
        program.post("/wallets/rich/deposits", {"amount": "7.00"})
        with closing(sqlite3.connect(payres.context.settings.database)) as other:
            busy, *_ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert busy == 0, "no snapshot is held"
        assert len(steps) < 2 * MANY // BATCH_TRANSFERS, "it is read no further than the client and the system take"
        opening, *lines, end = csv.reader(line.decode() for line in [*answer][1:])
    assert (opening[1], opening[3]) == ("opening balance", "0.00")
    assert (end[1], end[3], len(lines)) == ("closing balance", before, MANY)
    assert sum(int(line[2].replace(".", "")) for line in lines) == int(before.replace(".", ""))
    assert program.get("/wallets/rich")["balance"] != before
    wait_until(lambda: is_free(payres))


def test_reader_that_goes_ends_its_export(
    payres: Instance, program: Program, steps: list[Export], cut: list[str]
) -> None:
    with download(program, "/exports/ledger"):
        wait_until(stuck(payres))
    wait_until(lambda: is_free(payres))
    wait_until(lambda: cut == ["the client has gone"])
    assert 2 * len(steps) < MANY // BATCH_TRANSFERS


def test_exports_at_a_time_are_limited(payres: Instance, program: Program) -> None:
    slots, others = operator_of(payres.context).export_slots, MAX_EXPORTS - MAX_EXPORTS_OF_CALLER
    with ExitStack() as taken:
        for caller, count in ((f"api:{program.id}", MAX_EXPORTS_OF_CALLER), ("others", others)):
            for _ in range(count):
                assert slots.try_take(caller)
                taken.callback(slots.release, caller)
            if caller != "others":
                assert slots.try_take("page:ann"), "those of others are not counted"
                slots.release("page:ann")
            answer = program.ask("GET", "/exports/payments")
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_requests")
        assert not slots.try_take("page:ann")
    assert program.ask("GET", "/exports/payments").status_code == 200


def ends_early(payres: Instance, program: Program, end: Callable[[], object]) -> None:
    with download(program, "/exports/ledger") as answer:
        wait_until(stuck(payres))
        end()
        with pytest.raises(http.client.IncompleteRead):
            answer.read()
    wait_until(lambda: is_free(payres))


def test_export_ends_with_its_key_and_nobody_takes_it_for_all(
    payres: Instance, new_program: NewProgram, cut: list[str]
) -> None:
    reader = new_program("ledger:read")
    ends_early(payres, reader, lambda: payres.write(lambda work: revoke_api_key(work, reader.id)))
    wait_until(lambda: len(cut) == 1)


def test_export_that_takes_too_long_is_cut_short(
    payres: Instance, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeout, late = asyncio.timeout, list[asyncio.Timeout]()

    def remembered(seconds: float | None) -> asyncio.Timeout:
        made = timeout(seconds)
        if seconds == EXPORT_SECONDS:
            late.append(made)
        return made

    monkeypatch.setattr(asyncio, "timeout", remembered)

    def pass_the_deadline() -> None:
        loop = payres._server._loop.result()
        loop.call_soon_threadsafe(late[0].reschedule, loop.time())

    ends_early(payres, program, pass_the_deadline)
