"""`payres payment` on payments that a server made; tests/operator has the rules."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from payres.cli import main
from payres.core.store.connections import connect_writer
from tests.cli.conftest import facts_in, rows_in
from tests.helpers import Json, usd
from tests.instance import run_instance

Run = Callable[..., Any]


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Json]:
    """alice has paid 5.00 to bob; the ids of both payments, the database, and a command on it."""
    database = tmp_path / "payres.db"
    with run_instance(database) as instance:
        bill = instance.client.create_incoming_payment(instance.wallet("bob"), usd(500))
        paid = instance.client.pay(instance.wallet("alice"), bill["id"])
        ids = {name: one["id"].rpartition("/")[2] for name, one in (("bill", bill), ("paid", paid))}
        yield {"database": database, "base_url": instance.base_url, **ids}


@pytest.fixture
def run(books: Json, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAYRES_BASE_URL", books["base_url"])

    def invoke(*arguments: str, fails: bool = False) -> str:
        words = ["payment", *arguments, "--database", str(books["database"])]
        result = CliRunner().invoke(main, words, catch_exceptions=False)
        assert (result.exit_code != 0) == fails, result.output
        return result.stderr if fails else result.stdout

    return invoke


def test_list_shows_both_directions_newest_first(run: Run, books: Json) -> None:
    [labels, paid, bill] = rows_in(run("list"))
    assert labels[1:] == ["Payment", "Direction", "Wallet", "Amount", "Moved", "Asset", "State", "Receiver"]
    assert paid[1:-1] == [books["paid"], "outgoing", "alice", "5.00", "5.00", "USD", "completed"]
    assert bill[1:] == [books["bill"], "incoming", "bob", "5.00", "5.00", "USD", "completed"]


def test_show_tells_the_whole_story(run: Run, books: Json) -> None:
    text = run("show", books["paid"])
    moved = "USD 5.00 moved from the wallet alice to the wallet bob"
    for part in ("outgoing", "asked for a grant", "A quote: ", moved, "Delivered"):
        assert part in text
    assert facts_in(run("show", books["bill"]))["Paid by"] == books["paid"]


def test_show_tells_that_a_payment_expired(run: Run, books: Json) -> None:
    with closing(connect_writer(str(books["database"]))) as connection:
        sql = "UPDATE incoming_payment SET completed_at = NULL, expires_at = created_at + 1 WHERE id = ?"
        assert connection.execute(sql, (books["bill"],)).rowcount == 1
    assert "It expired. It had received USD 5.00." in run("show", books["bill"])


def test_refund_goes_back_once(run: Run, books: Json) -> None:
    first = json.loads(run("refund", books["bill"], "--amount", "2.00", "--reference", "r-1", "--json"))["refunds"]
    again = json.loads(run("refund", books["bill"], "--amount", "2,00", "--reference", "r-1", "--json"))["refunds"]
    assert again == first
    assert (first[0]["amount"], first[0]["payer"]) == ("2.00", "alice")
    assert "USD 2.00 came back from bob, under the reference r-1." in run("show", books["paid"])
    too_much = run("refund", books["bill"], "--amount", "3.01", "--reference", "r-2", fails=True)
    assert "Only USD 3.00 of the payment can still be sent back" in too_much
    assert "--reference" in run("refund", books["bill"], fails=True)
