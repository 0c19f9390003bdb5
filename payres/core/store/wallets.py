"""SQL of wallet addresses and their keys."""

from collections.abc import Sequence
from functools import cache

import msgspec

from payres.core.protocol.amounts import Asset, Fee
from payres.core.protocol.errors import InvalidRequest, require
from payres.core.protocol.urls import require_wallet_path
from payres.core.protocol.visible import as_read, readings, visible_name
from payres.core.store.rows import R, Table, number
from payres.core.store.work import Transaction, Work


class WalletRecord(msgspec.Struct, frozen=True):
    """A wallet address with its asset and sending fee; path is the part after the base URL, `tag` stands for it in ILP
    addresses, times are microseconds."""

    id: int
    path: str
    public_name: str | None
    asset_id: int
    asset_code: str
    asset_scale: int
    fee_fixed: int
    fee_basis_points: int
    account_id: int
    owner_id: int
    state: str
    created_at: int
    tag: str

    @property
    def active(self) -> bool:
        return self.state == "active"

    @property
    def name(self) -> str:
        """What its owner is called: the public name, made safe to show, or else the path."""
        return visible_name(self.public_name, None) or self.path

    @property
    def asset(self) -> Asset:
        return Asset(self.asset_code, self.asset_scale)

    @property
    def fee(self) -> Fee:
        return Fee(self.fee_fixed, self.fee_basis_points)


class KeyRecord(msgspec.Struct, frozen=True):
    """A public key of a wallet address; x is base64url as in its JWK, name is given by the operator."""

    id: int
    wallet_address_id: int
    kid: str
    x: str
    created_at: int
    revoked_at: int | None
    name: str | None


WALLETS = Table(
    WalletRecord,
    "wallet_address w JOIN asset a ON a.id = w.asset_id",
    prefix="w.",
    asset_code="a.code",
    asset_scale="a.scale",
    fee_fixed="a.fee_fixed",
    fee_basis_points="a.fee_basis_points",
)
KEYS = Table(KeyRecord, "wallet_key")


def find_wallet(tx: Transaction, path: str) -> WalletRecord | None:
    return WALLETS.find(tx, path=path)


def active_wallet(work: Work, url: str, field: str = "walletAddress") -> WalletRecord:
    """The active wallet address at `url`. Raises InvalidRequest, naming `field`, if this server has none."""
    path = work.urls.wallet_path(url)
    wallet = find_wallet(work, path) if path is not None else None
    if wallet is None or not wallet.active:
        raise InvalidRequest(f"{field} is not an active wallet address of this server", field=field)
    return wallet


def find_with_wallet(
    tx: Transaction, table: Table[R], record_id: str, client_id: int | None = None
) -> tuple[R, WalletRecord] | None:
    """A row of a table with wallet_address_id and client_id, optionally restricted to one client, with its wallet."""
    values = (record_id,) if client_id is None else (record_id, client_id)
    row = tx.execute(_with_wallet(table, client_id is not None), values).fetchone()
    return (table.record(row[: table.width]), WALLETS.record(row[table.width :])) if row else None


@cache
def _with_wallet(table: Table[R], is_of_client: bool) -> str:
    mine = f"SELECT {table.columns} FROM {table.source} WHERE id = ?{' AND client_id = ?' if is_of_client else ''}"
    its_wallet = "w.id = mine.wallet_address_id"
    return f"SELECT mine.*, {WALLETS.columns} FROM ({mine}) mine JOIN {WALLETS.source} AND {its_wallet}"


def name_wallet(tx: Transaction, wallet_id: int, path: str, name: str | None) -> None:
    """Gives the wallet at this path a public name, or none, and stores how both are read."""
    read = {"path_as_read": as_read(path), "name_as_read": None if name is None else as_read(name)}
    WALLETS.update(tx, wallet_id, public_name=name, **read)


def read_like(tx: Transaction, name: str, owner_id: int) -> str | None:
    """The path of a wallet of another owner whose path or public name is read like this name, None if there is none."""
    ways, condition = readings(name), "(path_as_read IN (?, ?) OR name_as_read IN (?, ?)) AND owner_id <> ?"
    row = tx.execute(f"SELECT path FROM wallet_address WHERE {condition} LIMIT 1", (*ways, *ways, owner_id)).fetchone()
    return row[0] if row else None


def count_wallets(tx: Transaction) -> int:
    return number(tx, "SELECT count(*) FROM wallet_address")


def find_key(tx: Transaction, path: str, kid: str) -> str | None:
    """The x of a valid key of an active wallet address, or None."""
    row = tx.execute(
        "SELECT k.x FROM wallet_key k JOIN wallet_address w ON w.id = k.wallet_address_id"
        " WHERE w.path = ? AND w.state = 'active' AND k.kid = ? AND k.revoked_at IS NULL",
        (path, kid),
    ).fetchone()
    return row[0] if row else None


def find_valid_key(tx: Transaction, wallet_id: int, kid: str) -> KeyRecord | None:
    return KEYS.find(tx, "WHERE wallet_address_id = ? AND kid = ? AND revoked_at IS NULL", wallet_id, kid)


def last_key(tx: Transaction, wallet_id: int, kid: str) -> KeyRecord | None:
    """The last key with this kid, valid or not."""
    return KEYS.find(tx, "WHERE wallet_address_id = ? AND kid = ? ORDER BY id DESC", wallet_id, kid)


def list_keys(tx: Transaction, wallet_id: int, revoked: bool = False) -> Sequence[KeyRecord]:
    """The valid keys, oldest first; with `revoked`, the revoked ones too."""
    return KEYS.list(tx, "WHERE wallet_address_id = ? AND (revoked_at IS NULL OR ?) ORDER BY id", wallet_id, revoked)


def require_wallet(work: Work, wallet: str) -> WalletRecord:
    """The wallet at a path, active or not. Raises NotFound, InvalidRequest for an invalid path."""
    clean = require_wallet_path(wallet)
    return require(find_wallet(work, clean), f"There is no wallet {clean}", "`payres wallet list` shows all")
