"""The databases to measure on: wallets, clients with keys and tokens, any number of incoming payments, peers and
webhooks."""

import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from payres.core.grants import clients
from payres.core.grants.tokens import issue_token
from payres.core.process.settings import Settings
from payres.core.protocol.clock import DAY
from payres.core.protocol.gnap import Access, IncomingPaymentAccess, OutgoingPaymentAccess, QuoteAccess
from payres.core.protocol.identifiers import hash_secret
from payres.core.protocol.urls import Urls, canonical
from payres.core.protocol.wire import encode
from payres.core.signatures.jwk import jwk_from_public_bytes
from payres.core.store.clients import Client, ClientRecord
from payres.core.store.connections import connect_writer
from payres.core.store.grants import GRANTS, GrantRecord
from payres.core.store.migrations import schema
from payres.core.store.work import Environment, Transaction, Work
from payres.operator import peers, webhooks
from payres.operator.keys import add_key
from payres.operator.peers import NewPeer
from payres.operator.wallets import create_wallet, deposit

WALLETS = 100
CLIENTS = 50
SAMPLE = 2000  # payments that the requests read and pay
KID = "bench"
LIFETIME_SECONDS = 86400  # of tokens
CHUNK = 1_000_000
CREDIT_LIMIT = "10000000000000.00"
START = 1_735_689_600_000_000  # 2025-01-01, when the first payment was made; the last one 20 days later
SPAN = 20 * DAY

# Every fifth payment is into the first wallet, the others into all but the last, by any client. The ids are UUIDv7.
INSERTION = """
INSERT INTO incoming_payment (id, wallet_address_id, client_id, created_at, expires_at)
WITH RECURSIVE
  numbers (n) AS (VALUES (:first) UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :last),
  drawn (n, created_at, one, other) AS (
    SELECT n, :start + n * :step, n * 2654435761 & 0xffffffff, n * 2246822519 & 0xffffffff FROM numbers)
SELECT
  printf('%08x-%04x-7%03x-8%03x-%012x', created_at / 1000 >> 16, created_at / 1000 & 0xffff, one >> 20, other >> 20, n),
  :wallet + iif(n % 5 = 0, 0, 1 + (one >> 8) % (:wallets - 2)),
  :client + (other >> 8) % :clients,
  created_at,
  created_at + :lifetime
FROM drawn
"""
INDEXES = "SELECT name, sql FROM sqlite_master WHERE tbl_name = 'incoming_payment' AND type = 'index' AND sql <> ''"


class Caller(msgspec.Struct, frozen=True):
    """A client that signs requests, and the token of a grant that permits what the benchmark asks for."""

    client_id: int
    private_key: Ed25519PrivateKey
    token: str


class Population(msgspec.Struct, frozen=True):
    """What requests are made of. `payments` are pairs of an incoming payment's id and the caller that made it.

    The first wallet address has the most incoming payments; the last has none, and the callers may pay from it.
    """

    path: Path
    urls: Urls
    callers: Sequence[Caller]
    wallet_addresses: Sequence[str]
    payments: Sequence[tuple[str, Caller]]


class Node(msgspec.Struct, frozen=True):
    """A server as its peers see it. `token` is what it shows them."""

    ilp_address: str
    url: str
    token: str


def populate(
    path: Path, base_url: str, payments: int, cache: Path | None = None, tell: Callable[[str], None] = lambda _: None
) -> Population:
    """A new database at `path` with this many open incoming payments, spread over wallets and clients.

    With a cache it is a copy of one that is kept there: 10,000,000 payments take minutes to insert. That one is made
    anew when the schema or this module has changed, and replaces the one of before.
    """
    made_by = schema().encode() + Path(__file__).read_bytes()
    kept = path if cache is None else cache / f"{payments}-{hashlib.sha256(made_by).hexdigest()[:12]}.db"
    if not kept.exists():
        for outdated in cache.glob(f"{payments}-*.db") if cache else ():
            outdated.unlink()
        _build(path, base_url, payments, tell)
        path.rename(kept)
    if kept != path:
        tell(f"copying {kept}")
        shutil.copyfile(kept, path)
    return _introduced(path, base_url)


def add_peer(path: Path, own: Node, peer: Node) -> None:
    """Puts `peer` in force at the server of a database, which must not be running."""
    new = NewPeer(
        name=peer.ilp_address,
        ilp_address=peer.ilp_address,
        asset_code="USD",
        asset_scale=2,
        url=peer.url,
        outgoing_token=own.token,
        incoming_token=peer.token,
        credit_limit=CREDIT_LIMIT,
    )
    with _unit(path, Settings(ilp_address=own.ilp_address)) as work:
        peers.add_peer(work, new)


def subscribe(population: Population, url: str, undelivered: int = 0) -> None:
    """A webhook for all events, on this machine, and so many that it has not got. The server must not be running."""
    with _unit(population.path, Settings(base_url=population.urls.base)) as work:
        webhooks.add(work, url, private=True)
        for _ in range(undelivered):
            deposit(work, _wallet_path(1), "0.01")


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a database whose server may be running."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        yield connection


def attempted(database: Path) -> int:
    """Up to which event all have been sent to the one webhook, or tried to be."""
    with reading(database) as connection:
        return int(connection.execute("SELECT cursor FROM webhook").fetchone()[0])


@contextmanager
def _unit(path: Path, settings: Settings, *pragmas: str) -> Iterator[Work]:
    """One transaction in a database; the pragmas are of its connection."""
    with closing(connect_writer(str(path))) as connection:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN")
        yield Work(connection, Environment.of(settings))
        connection.execute("COMMIT")


def _build(path: Path, base_url: str, payments: int, tell: Callable[[str], None]) -> None:
    """Makes the file, with everything in it but what clients sign and authorize with."""
    # A file that is not finished is thrown away: it need not be durable, and what refers to what is known here.
    pragmas = ("journal_mode = OFF", "synchronous = OFF", "foreign_keys = OFF", "temp_store = FILE")
    with _unit(path, Settings(base_url=base_url), *pragmas) as work:
        wallet_ids = [_open_wallet(work, number) for number in range(WALLETS)]
        client_ids = [_client(work, number).id for number in range(CLIENTS)]
        _insert_payments(work, wallet_ids, client_ids, payments, tell)


def _insert_payments(
    tx: Transaction, wallet_ids: Sequence[int], client_ids: Sequence[int], count: int, tell: Callable[[str], None]
) -> None:
    """Inserts payments made evenly over 20 days, the same ones each time; sorting them into indexes comes last."""
    indexes = tx.execute(INDEXES).fetchall()
    for name, _ in indexes:
        tx.execute(f"DROP INDEX {name}")
    values = {"wallet": wallet_ids[0], "wallets": len(wallet_ids), "client": client_ids[0], "clients": len(client_ids)}
    values |= {"start": START, "step": SPAN // count, "lifetime": 36500 * DAY}
    for first in range(0, count, CHUNK):
        last = min(first + CHUNK, count)
        tx.execute(INSERTION, values | {"first": first, "last": last})
        tell(f"inserted {last:,} of {count:,} incoming payments")
    for name, definition in indexes:
        tell(f"making the index {name}")
        tx.execute(definition)


def _introduced(path: Path, base_url: str) -> Population:
    """What requests are made of; gives the clients keys and tokens that are good from now on."""
    settings = Settings(base_url=base_url, access_token_lifetime=LIFETIME_SECONDS)
    with _unit(path, settings) as work:
        callers = [_introduce(work, number) for number in range(CLIENTS)]
        payments = _sample(work, {caller.client_id: caller for caller in callers})
        wallet_addresses = [work.urls.wallet(_wallet_path(number)) for number in range(WALLETS)]
        return Population(path, work.urls, callers, wallet_addresses, payments)


def _sample(tx: Transaction, callers: Mapping[int, Caller]) -> Sequence[tuple[str, Caller]]:
    """Payments from all over the table, each with the caller that made it."""
    found: list[tuple[str, Caller]] = []
    for number in range(SAMPLE):
        made_at = f"{(START + number * SPAN // SAMPLE) // 1000:012x}"
        query = "SELECT id, client_id FROM incoming_payment WHERE id >= ? ORDER BY id LIMIT 1"
        payment_id, client_id = tx.execute(query, (f"{made_at[:8]}-{made_at[8:]}",)).fetchone()
        found.append((payment_id, callers[client_id]))
    return found


def _wallet_path(number: int) -> str:
    return f"wallet-{number}"


def _open_wallet(work: Work, number: int) -> int:
    wallet = create_wallet(work, _wallet_path(number), "USD", 2, f"Wallet {number}", None)
    deposit(work, wallet.path, "1000000000.00")
    return wallet.id


def _client(work: Work, number: int) -> ClientRecord:
    wallet_address = work.urls.wallet(_wallet_path(number))
    return clients.remember(work, Client(canonical(wallet_address), wallet_address, None))


def _introduce(work: Work, number: int) -> Caller:
    """A client with a key at one of the wallet addresses, and a grant that its owner need not consent to any more."""
    private_key = Ed25519PrivateKey.generate()
    raw = private_key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    add_key(work, _wallet_path(number), jwk_from_public_bytes(KID, raw))
    record = _client(work, number)
    access: list[Access] = [
        IncomingPaymentAccess(actions=["create", "read", "list"]),
        QuoteAccess(actions=["create"]),
        OutgoingPaymentAccess(actions=["create"], identifier=work.urls.wallet(_wallet_path(WALLETS - 1))),
    ]
    grant = GrantRecord(
        id=work.new_id(),
        client_id=record.id,
        client_name=None,
        state="issued",
        access=encode(access).decode(),
        subject=None,
        wallet_address_id=None,
        continue_hash=hash_secret(work.new_secret()),
        waits_from=work.now,
        created_at=work.now,
        ended_at=None,
    )
    GRANTS.insert(work, grant)
    token = issue_token(work, grant)
    return Caller(record.id, private_key, token.value)
