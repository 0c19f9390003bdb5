"""The databases to measure on: wallets, clients with keys and tokens, any number of incoming payments, peers and
webhooks."""

import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from payres.core.grants import clients
from payres.core.grants.tokens import issue_token
from payres.core.process.settings import Settings
from payres.core.protocol.clock import DAY
from payres.core.protocol.gnap import Access, IncomingPaymentAccess, OutgoingPaymentAccess, QuoteAccess
from payres.core.protocol.urls import Urls, canonical
from payres.core.protocol.wire import encode
from payres.core.signatures.jwk import generate_private_key, jwk_from_public_bytes
from payres.core.store.clients import Client, ClientRecord
from payres.core.store.connections import connect_writer
from payres.core.store.grants import GRANTS, GrantRecord
from payres.core.store.migrations import schema
from payres.core.store.work import Environment, Work
from payres.operator import webhooks
from payres.operator.keys import add_key
from payres.operator.wallets import create_wallet, deposit

WALLETS = 100
CLIENTS = 50
FEW_PAYMENTS = 10_000  # with fewer, a client has not a whole page of them in the busiest wallet
SAMPLE = 2000  # payments that the requests read and pay
KID = "bench"
LIFETIME_SECONDS = 86400  # of tokens
START = 1_735_689_600_000_000  # 2025-01-01, when the first payment was made; the last one 20 days later
SPAN = 20 * DAY

# Every fifth payment is into the first wallet, the others into all but the last, by any client. The ids are UUIDv7.
INSERTION = """
INSERT INTO incoming_payment (id, wallet_address_id, client_id, created_at, expires_at)
WITH RECURSIVE
  numbers (n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :count),
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


def subscribe(population: Population, url: str, undelivered: int = 0) -> None:
    """A webhook for all events, on this machine, and so many that it has not got. The server must not be running."""
    with unit(population.path, Settings(base_url=population.urls.base)) as work:
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
def unit(path: Path, settings: Settings, *pragmas: str) -> Iterator[Work]:
    """One transaction in a database whose server must not be running; the pragmas are of its connection."""
    with closing(connect_writer(str(path))) as connection:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN")
        yield Work(connection, Environment.of(settings))
        connection.execute("COMMIT")


def _build(path: Path, base_url: str, count: int, tell: Callable[[str], None]) -> None:
    """Makes the file, with everything in it but what clients sign and authorize with.

    The payments are made evenly over 20 days, the same ones each time; sorting them into indexes comes last.
    """
    # A file that is not finished is thrown away: it need not be durable, and what refers to what is known here.
    pragmas = ("journal_mode = OFF", "synchronous = OFF", "foreign_keys = OFF", "temp_store = FILE")
    with unit(path, Settings(base_url=base_url), *pragmas) as work:
        first_wallet, *_ = [_open_wallet(work, number) for number in range(WALLETS)]
        first_client, *_ = [_client(work, number).id for number in range(CLIENTS)]
        values = {"wallet": first_wallet, "wallets": WALLETS, "client": first_client, "clients": CLIENTS}
        values |= {"count": count, "start": START, "step": SPAN // count, "lifetime": 36500 * DAY}
        indexes = work.execute(INDEXES).fetchall()
        for name, _ in indexes:
            work.execute(f"DROP INDEX {name}")
        tell(f"inserting {count:,} incoming payments")
        work.execute(INSERTION, values)
        for name, definition in indexes:
            tell(f"making the index {name}")
            work.execute(definition)


def _introduced(path: Path, base_url: str) -> Population:
    """What requests are made of; gives the clients keys and tokens that are good from now on.

    Its payments are from all over the table, each with the caller that made it.
    """
    with unit(path, Settings(base_url=base_url, access_token_lifetime=LIFETIME_SECONDS)) as work:
        callers = {caller.client_id: caller for caller in (_introduce(work, number) for number in range(CLIENTS))}
        payments: list[tuple[str, Caller]] = []
        for number in range(SAMPLE):
            made_at = f"{(START + number * SPAN // SAMPLE) // 1000:012x}"
            query = "SELECT id, client_id FROM incoming_payment WHERE id >= ? ORDER BY id LIMIT 1"
            payment_id, client_id = work.execute(query, (f"{made_at[:8]}-{made_at[8:]}",)).fetchone()
            payments.append((payment_id, callers[client_id]))
        wallet_addresses = [work.urls.wallet(_wallet_path(number)) for number in range(WALLETS)]
        return Population(path, work.urls, list(callers.values()), wallet_addresses, payments)


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
    key, client_id, grant_id, now = generate_private_key(), _client(work, number).id, work.new_id(), work.now
    add_key(work, _wallet_path(number), jwk_from_public_bytes(KID, key.public_key().public_bytes_raw()))
    items: list[Access] = [
        IncomingPaymentAccess(actions=["create", "read", "list"]),
        QuoteAccess(actions=["create"]),
        OutgoingPaymentAccess(actions=["create"], identifier=work.urls.wallet(_wallet_path(WALLETS - 1))),
    ]
    access = encode(items).decode()
    grant = GrantRecord(grant_id, client_id, None, "issued", access, None, None, grant_id.encode(), now, now, None)
    GRANTS.insert(work, grant)
    return Caller(client_id, key, issue_token(work, grant).value)
