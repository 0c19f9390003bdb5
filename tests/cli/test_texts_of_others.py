"""What clients, other servers and mail servers wrote moves no terminal, and is no line of its own."""

import ast
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner

import payres.cli
from payres.cli import COMMANDS, main
from payres.core.protocol.clock import SystemClock
from payres.core.store.connections import connect_writer
from payres.core.store.work import Work
from payres.operator.upkeep.takeover import record_takeover
from tests.instance import run_instance
from tests.operator.pages.seed import Seeded, fill
from tests.people.mail_server import with_address
from tests.works import work_at

SAID: Final = "no\x1b]0;owned\x07 \x9b31m\u202e\r\nFIX  ledger: forged\x85\x00"
WRITTEN: Final = {
    "peer": ("last_error",),
    "webhook": ("last_error",),
    "delivery": ("last_error",),
    "webhook_attempt": ("error", "answer"),
    "outgoing_payment": ("failure", "receiver"),
    "mail": ("last_error",),
    '"grant"': ("client_name",),
    "wallet_address": ("public_name",),
    "wallet_key": ("name",),
}
# What prints something else than a text for people: JSON, a script for the shell, the roff of a manual page, an answer
# that goes to a program as it came, and what programs of this machine alone have said.
OTHERS: Final = {
    "session.show",
    "manual.completion",
    "manual.man",
    "open_payments.request",
    "sandbox._start",
    "sandbox.sandbox",
}


@pytest.fixture
def seeded(database: Path) -> Iterator[Seeded]:
    """A database in which others wrote that wherever they can, with its server."""
    with run_instance(database) as instance:
        found = fill(instance)
        with_address(instance, "alice", "alice@mail.example")

        def write(work: Work) -> None:
            work.execute("UPDATE peer SET last_error_at = ?", (work.now,))
            for table, columns in WRITTEN.items():
                for column in columns:
                    said = SAID.encode() if column == "answer" else SAID
                    work.execute(
                        f"UPDATE {table} SET {column} = ? WHERE {column} IS NOT NULL OR ?",
                        (said, column == "last_error"),
                    )

        instance.write(write)
        yield found


def lists() -> list[tuple[str, ...]]:
    """The commands that list things, without those that need to know of which."""
    found: list[tuple[str, ...]] = []
    for name in COMMANDS:
        group = main.get_command(click.Context(main), name)
        if isinstance(group, click.Group) and (one := group.commands.get("list")) is not None:
            found += [] if any(parameter.required for parameter in one.params) else [(name, "list")]
    return found


def test_commands_print_it_without_what_a_terminal_would_obey(seeded: Seeded, database: Path) -> None:
    asked = [
        ("doctor",),
        ("status",),
        ("peer", "show", "second"),
        ("webhook", "attempts", seeded.webhook),
        ("peer", "show", SAID),
        ("key", "revoke", "alice", SAID),
    ]
    asked += [("payment", "show", seeded.outgoing), ("grant", "show", seeded.grant), ("wallet", "show", "alice")]
    printed = ""
    for command in (*asked, *lists(), ("doctor",)):
        result = CliRunner().invoke(main, (*command, "--database", str(database)), catch_exceptions=False)
        printed += result.output
        if command == lists()[-1]:  # what the server in this one's place says of itself
            with connect_writer(str(database)) as connection:
                record_takeover(work_at(connection, SystemClock().now()), "http://127.0.0.1", SAID)
        hidden = {one for one in result.output if unicodedata.category(one) in {"Cc", "Cf"}} - {"\n"}
        assert (hidden, re.findall("^FIX  ledger: forged", result.output, re.MULTILINE)) == (set(), []), command
    assert printed.count("]0;owned") >= 8


def test_only_one_function_prints_texts() -> None:
    found = set()
    for file in Path(payres.cli.__file__).parent.glob("*.py"):
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and file.stem != "demo":
                calls = {ast.unparse(one.func) for one in ast.walk(function) if isinstance(one, ast.Call)}
                found |= {f"{file.stem}.{function.name}"} if calls & {"click.echo", "click.secho", "print"} else set()
    assert found - OTHERS == {"session.print_text"}
