"""A database to measure on: wallets, clients with keys and tokens, and any number of incoming payments."""

import random
from collections.abc import Iterator, Sequence

import msgspec
import uuid_utils
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from payres.clock import DAY
from payres.grants import clients
from payres.grants.access import encode_access
from payres.grants.clients import Client
from payres.grants.tokens import issue_token
from payres.identifiers import hash_secret
from payres.operator.keys import add_key
from payres.operator.wallets import create_wallet, deposit
from payres.settings import Settings
from payres.signatures.jwk import jwk_from_public_bytes
from payres.store import grants
from payres.store.connections import connect_writer
from payres.store.grants import GrantRecord
from payres.store.incoming import INCOMING
from payres.store.work import Transaction, Work, world
from payres.urls import Urls, canonical
from payres.wire import Access, IncomingPaymentAccess, OutgoingPaymentAccess, QuoteAccess

WALLETS = 100
CLIENTS = 50
BUSY_WALLET_SHARE = 5  # every fifth payment is into the first wallet
SAMPLE = 2000  # payments that the requests read and pay
KID = "bench"
LIFETIME_SECONDS = 86400  # of tokens


class Caller(msgspec.Struct, frozen=True):
    """A client that signs requests, and the token of a grant that permits what the benchmark asks for."""

    client_id: int
    private_key: Ed25519PrivateKey
    token: str


class Population(msgspec.Struct, frozen=True):
    """What requests are made of. `payments` are pairs of an incoming payment's id and the caller that made it."""

    path: str
    urls: Urls
    callers: Sequence[Caller]
    wallet_addresses: Sequence[str]
    payments: Sequence[tuple[str, Caller]]

    @property
    def busy_wallet_address(self) -> str:
        """The wallet address with the most incoming payments."""
        return self.wallet_addresses[0]

    @property
    def paying_wallet_address(self) -> str:
        """The wallet address that the callers may pay from; it has no incoming payments."""
        return self.wallet_addresses[-1]


def populate(path: str, base_url: str, payments: int) -> Population:
    """A new database at `path` with this many open incoming payments, spread over wallets and clients."""
    around = world(Settings(base_url=base_url, access_token_lifetime=LIFETIME_SECONDS))
    urls = around.urls
    connection = connect_writer(path)
    work = Work(connection, around)
    try:
        connection.execute("PRAGMA synchronous = OFF")  # the file is thrown away when making it is interrupted
        connection.execute("BEGIN")
        wallet_ids = [_open_wallet(work, number) for number in range(WALLETS)]
        callers = [_introduce(work, number) for number in range(CLIENTS)]
        client_ids = [caller.client_id for caller in callers]
        ids = _insert_payments(connection, wallet_ids, client_ids, payments, work.now)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
    wallet_addresses = [urls.wallet(_wallet_path(number)) for number in range(WALLETS)]
    made_by = [(payment_id, callers[client]) for payment_id, client in ids]
    return Population(path, urls, callers, wallet_addresses, made_by)


def _wallet_path(number: int) -> str:
    return f"wallet-{number}"


def _open_wallet(work: Work, number: int) -> int:
    wallet = create_wallet(work, _wallet_path(number), "USD", 2, f"Wallet {number}", None)
    deposit(work, wallet.path, "1000000000.00")
    return wallet.id


def _introduce(work: Work, number: int) -> Caller:
    """A client with a key at one of the wallet addresses, and a grant that its owner need not consent to any more."""
    private_key = Ed25519PrivateKey.generate()
    raw = private_key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    add_key(work, _wallet_path(number), jwk_from_public_bytes(KID, raw))
    wallet_address = work.urls.wallet(_wallet_path(number))
    record = clients.remember(work, Client(canonical(wallet_address), wallet_address, None))
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
        access=encode_access(access),
        subject=None,
        wallet_address_id=None,
        continue_hash=hash_secret(work.new_secret()),
        waits_from=work.now,
        created_at=work.now,
        ended_at=None,
    )
    grants.insert_grant(work, grant)
    token = issue_token(work, grant)
    return Caller(record.id, private_key, token.value)


def _insert_payments(
    tx: Transaction, wallet_ids: Sequence[int], client_ids: Sequence[int], count: int, now: int
) -> Sequence[tuple[str, int]]:
    """Inserts payments made evenly over the last 20 days; returns some of their ids, each with its client's place."""
    sampled: list[tuple[str, int]] = []
    pick_every = max(count // SAMPLE, 1)

    def rows() -> Iterator[tuple[object, ...]]:
        chance = random.Random(1)
        step = 20 * DAY // count
        for number in range(count):
            created_at = now - (count - number) * step
            payment_id = str(uuid_utils.uuid7(nanoseconds=created_at * 1000))
            wallet = 0 if number % BUSY_WALLET_SHARE == 0 else chance.randrange(1, len(wallet_ids) - 1)
            client = chance.randrange(len(client_ids))
            if number % pick_every == 0:
                sampled.append((payment_id, client))
            row = (payment_id, wallet_ids[wallet], client_ids[client], None, 0, None)
            yield (*row, created_at, created_at + 30 * DAY, None, None)

    tx.executemany(f"INSERT {INCOMING.into}", rows())
    return sampled
