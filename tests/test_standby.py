"""A read-only server over the file of a standby: what it answers, what it does not store, and what it sees change."""

import asyncio
import logging
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import copyfile

import httpx2
import msgspec
import pytest

from payres.application import create_app
from payres.core.process.settings import Settings
from payres.core.protocol.clock import SECOND, MovableClock
from payres.core.store.connections import connect_writer
from payres.core.store.database import READ_ONLY
from payres.core.store.migrations import migrations
from payres.operator import api_keys
from payres.testing.instance import _Server
from tests.conftest import Refused
from tests.helpers import sign_by_hand
from tests.instance import run_instance
from tests.signing_client import Client


class Standby(msgspec.Struct, frozen=True):
    """What a primary has handed out, and the file into which its database was copied; both have one base URL."""

    base_url: str
    database: Path
    client: Client
    token: str
    manage: str
    payment: str
    api_key: str
    created: int  # the second in which its signatures are made


@pytest.fixture(scope="module")
def standby(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standby]:
    """A standby that runs, after its primary has stopped."""
    folder = tmp_path_factory.mktemp("standby")
    with run_instance(folder / "payres.db") as primary:
        payment = primary.client.create_incoming_payment(primary.wallet("bob"))["id"]
        access = {"type": "incoming-payment", "actions": ["create", "read", "list", "complete"]}
        granted = primary.client.obtain_grant(access | {"identifier": primary.wallet("bob")})["access_token"]
        api_key = primary.write(lambda work: api_keys.create_api_key(work, "test", ["payments:read"], None)).key
        settings = primary.context.settings
        shop, clock = primary.client, primary.clock
        client = Client(shop.wallet_address, shop.private_key, shop.jwk, primary.base_url, clock, primary.approve)
    database = folder / "standby.db"
    copyfile(folder / "payres.db", database)
    Path(f"{database}-txid").write_text("0000000000000001\n")
    with closing(client), serving(msgspec.structs.replace(settings, database=str(database), read_only=True), clock):
        yield Standby(
            settings.base_url,
            database,
            client,
            granted["value"],
            granted["manage"],
            payment,
            api_key,
            clock.now() // SECOND,
        )


@contextmanager
def serving(settings: Settings, clock: MovableClock) -> Iterator[None]:
    """A server of these settings, without wallets of its own."""
    port = int(settings.base_url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)) as listener:
        server = _Server(create_app(settings, clock), listener)
        server.start()
        try:
            yield
        finally:
            server.stop()


@pytest.fixture
def change(standby: Standby) -> Iterator[Callable[[str], None]]:
    """Runs a statement on a copy, and writes the pages that it changed into the standby's file, as Litestream does."""
    before = standby.database.read_bytes()

    def run(statement: str) -> None:
        copy = standby.database.with_name("changed.db")
        copy.write_bytes(standby.database.read_bytes())
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.execute(statement)
        old, new = standby.database.read_bytes(), copy.read_bytes()
        assert len(old) == len(new)
        size = int.from_bytes(old[16:18], "big")
        changed = [place for place in range(size, len(old), size) if old[place : place + size] != new[place:][:size]]
        assert changed
        with standby.database.open("r+b") as file:
            for place in changed:
                file.seek(place)
                file.write(new[place : place + size])

    yield run
    standby.database.write_bytes(before)


@pytest.mark.parametrize("path", ["/alice", "/shop/jwks.json", "/healthz", "/.well-known/pay/jwks.json"])
def test_public_addresses_are_answered(standby: Standby, anonymous: httpx2.Client, path: str) -> None:
    assert anonymous.get(standby.base_url + path).status_code == 200


def test_signed_reads_are_answered(standby: Standby) -> None:
    assert standby.client.get(standby.payment, standby.token).json()["id"] == standby.payment
    listed = standby.client.get(f"/incoming-payments?wallet-address={standby.base_url}/bob", standby.token)
    assert [one["id"] for one in listed.json()["result"]] == [standby.payment]


def test_nonce_that_cannot_be_stored_is_not_taken(standby: Standby, anonymous: httpx2.Client, refused: Refused) -> None:
    sent = {"authorization": f"GNAP {standby.token}"}
    covered = {"@method": "GET", "@target-uri": standby.payment, **sent}
    parameters = f';created={standby.created};keyid="key-1";nonce="once"'
    headers = sent | sign_by_hand(standby.client.private_key, covered, parameters)
    refused(anonymous.get(standby.payment, headers=headers), 503, "unavailable", hint=READ_ONLY)


def test_operators_see_payments(standby: Standby, anonymous: httpx2.Client) -> None:
    headers = {"Authorization": f"Bearer {standby.api_key}"}
    answer = anonymous.get(f"{standby.base_url}/admin/v1/payments", headers=headers)
    assert answer.status_code == 200, answer.text


def test_what_would_be_stored_is_refused(standby: Standby, refused: Refused) -> None:
    bob, client, token = f"{standby.base_url}/bob", standby.client, standby.token
    quoted = {"walletAddress": bob, "receiver": standby.payment, "method": "ilp"}
    for answer in (
        client.post("/incoming-payments", {"walletAddress": bob}, token),
        client.post(f"{standby.payment}/complete", None, token),
        client.request_grant({"type": "incoming-payment", "actions": ["create"]}),
        client.delete(standby.manage, token),
    ):
        refused(answer, 503, "unavailable", hint=READ_ONLY)
        assert answer.headers["retry-after"] == "60"
    assert client.post("/quotes", quoted, token).status_code == 403  # what can be said without storing is


def test_readiness_says_that_it_is_a_standby(standby: Standby, anonymous: httpx2.Client) -> None:
    answer = anonymous.get(f"{standby.base_url}/readyz")
    assert (answer.status_code, answer.json()["reason"]) == (503, READ_ONLY)
    details = answer.json()["details"]
    assert (details["readOnly"], details["restoredAt"]) == (True, None)
    assert details["changedAt"].endswith("Z")


def test_change_is_seen_though_the_first_page_does_not_tell(
    standby: Standby, anonymous: httpx2.Client, change: Callable[[str], None]
) -> None:
    url = f"{standby.base_url}/alice"
    assert anonymous.get(url).json()["publicName"] == "Alice"
    change("UPDATE wallet_address SET public_name = 'Alina' WHERE path = 'alice'")
    assert anonymous.get(url).json()["publicName"] == "Alina"


@pytest.mark.usefixtures("second_version")
def test_database_of_an_older_version_is_not_read(
    standby: Standby, anonymous: httpx2.Client, refused: Refused, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        refused(anonymous.get(f"{standby.base_url}/alice"), 503, "unavailable")
    assert "The database is of an older version and is only read here" in caplog.text


def test_database_of_another_version_is_not_read(
    standby: Standby, anonymous: httpx2.Client, refused: Refused, caplog: pytest.LogCaptureFixture
) -> None:
    before = standby.database.read_bytes()
    with standby.database.open("r+b") as file:
        file.seek(60)  # the user version, of which Litestream brings the primary's
        file.write((max(migrations()) + 1).to_bytes(4, "big"))
    try:
        with caplog.at_level(logging.ERROR):
            refused(anonymous.get(f"{standby.base_url}/alice"), 503, "unavailable")
    finally:
        standby.database.write_bytes(before)
    assert "install the payres that wrote it" in caplog.text
    assert anonymous.get(f"{standby.base_url}/alice").status_code == 200


def test_file_that_is_away_or_half_written_is_read_again_afterwards(
    standby: Standby, anonymous: httpx2.Client, refused: Refused
) -> None:
    url, away = f"{standby.base_url}/alice", standby.database.with_name("away.db")
    standby.database.rename(away)
    refused(anonymous.get(url), 503, "unavailable")
    standby.database.write_bytes(away.read_bytes()[:4096] + bytes(len(away.read_bytes()) - 4096))
    refused(anonymous.get(url), 503, "unavailable")
    away.replace(standby.database)
    assert anonymous.get(url).status_code == 200


def test_nothing_is_written_and_no_lock_is_taken(standby: Standby, anonymous: httpx2.Client) -> None:
    before = standby.database.read_bytes(), standby.database.stat().st_mtime_ns
    anonymous.get(f"{standby.base_url}/alice")
    standby.client.post("/incoming-payments", {"walletAddress": f"{standby.base_url}/bob"}, standby.token)
    assert (standby.database.read_bytes(), standby.database.stat().st_mtime_ns) == before
    assert not Path(f"{standby.database}.lock").exists()


def test_standby_of_a_database_that_no_server_had_does_not_start(tmp_path: Path) -> None:
    connect_writer(str(tmp_path / "payres.db")).close()
    app = create_app(Settings(database=str(tmp_path / "payres.db"), read_only=True))

    async def start() -> None:
        async with app.router.lifespan_context(app):
            raise AssertionError("it has started")

    with pytest.raises(Exception, match="No server has had this database yet"):
        asyncio.run(start())
