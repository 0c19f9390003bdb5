"""The primary is lost under load, and its standby takes its place: Litestream that follows, and a server that reads.

LITESTREAM_LOSSES prolongs the series and LITESTREAM_INTERVALS repeats it, as for `test_litestream.py`; the follower
asks the replica as often as the primary's Litestream uploads. -s shows the figures.
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic

import httpx2
import msgspec
import pytest

from payres.store.connections import connect_standby
from tests.crash.load import TABLES, Load, open_server, payers_of
from tests.crash.server import PAYRES, SERVE, Server, free_port
from tests.crash.test_litestream import (
    INTERVALS,
    LOSSES,
    Intervals,
    acknowledged,
    compare,
    intervals_of,
    lose,
    replicating,
    write_config,
)
from tests.crash.test_litestream import litestream as litestream
from tests.helpers import TIMEOUT, announced, child, free_of_settings, last_segment, wait_until

pytestmark = pytest.mark.timeout(300 + 30 * LOSSES)


class Takeover(msgspec.Struct, frozen=True):
    """What was lost of what was acknowledged, the age of the oldest of it, and how long all took; in seconds."""

    acknowledged: int
    lost: int
    age: float
    promotion: float


@pytest.mark.parametrize("named", INTERVALS)
def test_standby_takes_the_place_of_a_lost_primary(named: str, litestream: str, tmp_path: Path) -> None:
    found = []
    for turn in range(LOSSES):
        folder = tmp_path / f"machines-{turn}"
        (folder / "standby").mkdir(parents=True)
        found.append(take_over(litestream, intervals_of(named), folder, 20 + 37 * turn))
    lost = ", ".join(f"{one.lost} of {one.acknowledged} ({one.age * 1000:.0f} ms)" for one in found)
    times = ", ".join(f"{one.promotion:.1f}" for one in found)
    print(f"\n{named}: of what was acknowledged, lost {lost}; seconds from the loss to the new server: {times}")  # noqa: T201 - seen with -s


def test_litestream_that_is_stopped_uploads_the_rest(litestream: str, tmp_path: Path) -> None:
    """So a primary that is stopped by hand, and Litestream after it, leaves nothing behind."""
    primary, config = Server(tmp_path), write_config(tmp_path, ("50ms", "1h"))
    primary.open_wallet("alice", "USD", 10)
    with replicating(litestream, config, tmp_path / "replica") as replication:
        primary.command("wallet", "deposit", "alice", "1.00")
        replication.send_signal(signal.SIGTERM)
        assert replication.wait(TIMEOUT) == 0
    new = str(tmp_path / "new.db")
    subprocess.run([litestream, "restore", "-config", str(config), "-o", new, database_of(config)], check=True)
    assert primary.command("wallet", "show", "alice", "--database", new)["balance"] == "11.00"


def take_over(litestream: str, intervals: Intervals, folder: Path, answers: int) -> Takeover:
    """Kills a primary that pays and its Litestream, promotes the standby, and proves what is there.

    `answers` are those that are waited for until the kill, once the standby has the first ones.
    """
    primary, config = open_server(folder), write_config(folder, intervals)
    standby = folder / "standby" / "standby.db"
    with closing(payers_of(primary)) as payers:
        with (
            replicating(litestream, config, folder / "replica") as replication,
            following(litestream, config, standby, intervals[1]) as follower,
            reading(primary, standby) as standby_url,
        ):
            with payers.running():
                payers.wait_for_answers(20)
                copied = acknowledged(payers)
                wait_until(lambda: is_read(standby_url) and copied <= numbers(standby))
                wait_until(lambda: is_past_snapshot(folder / "replica", standby))
                payers.wait_for_answers(answers)
                ended_at = monotonic()
                lose(primary, replication)
            wait_until(lambda: position(standby) == last_position(litestream, config))
            check_reads(payers, standby, standby_url)
            follower.send_signal(signal.SIGINT)
            assert follower.wait(TIMEOUT) == 0
        promoted = Server(standby.parent, port=primary.port)  # which has its address from now on
        assert promoted.command("restore", str(standby))["replaced"] is None
        promoted.start()
        promotion = monotonic() - ended_at
        assert promoted.command("ledger", "check")["ok"]
        assert copied <= numbers(promoted.database), "what was on the standby is gone"
        loss = compare(payers, promoted.database, ended_at)
        check_old_machine(primary)
        payers.shoppers[0].buy(100)
        assert promoted.command("ledger", "check")["ok"]
    return Takeover(loss.acknowledged, loss.lost, loss.seconds, promotion)


@contextmanager
def following(litestream: str, config: Path, standby: Path, interval: str) -> Iterator["subprocess.Popen[str]"]:
    """Litestream for the block, which copies what is in the replica into the standby's file, again and again."""
    command = [litestream, "restore", "-f", "-follow-interval", interval, "-config", str(config), "-o", str(standby)]
    with (
        standby.with_suffix(".log").open("wb") as log,
        child([*command, database_of(config)], stdout=log, stderr=log) as process,
    ):
        wait_until(lambda: Path(f"{standby}-txid").exists(), standby.with_suffix(".log").read_text)
        yield process


@contextmanager
def reading(primary: Server, standby: Path) -> Iterator[str]:
    """The read-only server over the standby's file for the block; where it listens."""
    port = free_port()
    where = ("--base-url", primary.base_url, "--port", str(port), "--database", str(standby))
    with (
        (standby.parent / "server.log").open("w") as log,
        child(
            [*PAYRES, *SERVE, "--read-only", *where],
            cwd=standby.parent,
            env=free_of_settings(),
            stdout=subprocess.PIPE,
            stderr=log,
        ) as process,
    ):
        announced(process)
        yield f"http://127.0.0.1:{port}"


def is_read(url: str) -> bool:
    """Checks that the standby answers while its file is written."""
    answer = httpx2.get(f"{url}/alice", timeout=TIMEOUT)
    assert answer.status_code == 200, answer.text
    return True


def check_reads(payers: Load, standby: Path, url: str) -> None:
    """The standby's server shows what its file has, and takes nothing."""
    newest = max(numbers(standby, "/incoming-payments"))
    for one in payers.payments():
        if one.number == newest and one.answer:
            id_ = last_segment(one.answer["id"])
            assert httpx2.get(f"{url}/incoming-payments/{id_}", timeout=TIMEOUT).json()["authServer"]
    assert is_read(url)
    ready = httpx2.get(f"{url}/readyz", timeout=TIMEOUT)
    assert (ready.status_code, ready.json()["details"]["readOnly"]) == (503, True)
    assert httpx2.post(f"{url}/", json={}, timeout=TIMEOUT).status_code in {401, 503}


def check_old_machine(primary: Server) -> None:
    """It comes back with its database, and does not start beside the server that has its address."""
    ended = Server(primary.folder, {"PAYRES_BASE_URL": primary.base_url}).run(*SERVE)
    assert (ended.returncode, "It has taken this one's place" in ended.stderr) == (3, True), ended.stderr


def numbers(database: Path, *paths: str) -> set[int]:
    """The numbers of the payments that are in a database, of these collections or of all."""
    with closing(connect_standby(str(database))) as connection:
        queries = [f"SELECT json_extract(metadata, '$.number') FROM {TABLES[path]}" for path in paths or TABLES]
        return {number for query in queries for (number,) in connection.execute(query)}


def is_past_snapshot(replica: Path, standby: Path) -> bool:
    """Whether the follower is past the snapshot that Litestream begins with: what that alone has, it never reads."""
    ends = [file.stem.partition("-")[2] for file in (replica / "ltx" / "9").glob("*.ltx")]
    return bool(ends) and max(ends) <= position(standby)


def position(standby: Path) -> str:
    """The last transaction that Litestream has written into the file."""
    return Path(f"{standby}-txid").read_text().strip()


def last_position(litestream: str, config: Path) -> str:
    """The last transaction in the replica."""
    where = ("-config", str(config), "-o", str(config.with_suffix(".new")), database_of(config))
    command = [litestream, "restore", "-dry-run", "-json", *where]
    plan = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True)
    return str(json.loads(plan.stdout)["max_txid"])


def database_of(config: Path) -> str:
    """The primary's database."""
    return str(config.with_name("payres.db"))
