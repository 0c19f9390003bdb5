"""SQL of assets, their sending fees, and exchange rates."""

from collections.abc import Sequence

import msgspec

from payres.amounts import Asset
from payres.store.rows import Table
from payres.store.work import Transaction


class AssetRecord(msgspec.Struct, frozen=True):
    """A row of `asset`. fee_fixed is in the minor unit."""

    id: int
    code: str
    scale: int
    fee_fixed: int
    fee_basis_points: int

    @property
    def asset(self) -> Asset:
        return Asset(self.code, self.scale)


class RateRecord(msgspec.Struct, frozen=True):
    """A row of `exchange_rate`. One that the operator set has no expires_at; the others are of the rates service."""

    base: str
    counter: str
    rate: str
    set_at: int
    expires_at: int | None = None

    def holds_at(self, now: int) -> bool:
        """Whether it may be used at this moment."""
        return self.expires_at is None or now < self.expires_at


ASSETS = Table(AssetRecord, "asset")
RATES = Table(RateRecord, "exchange_rate", base="base_code", counter="counter_code")
OF_PAIR = "WHERE base_code = ? AND counter_code = ?"


def find_asset(tx: Transaction, code: str, scale: int) -> AssetRecord | None:
    return ASSETS.find(tx, "WHERE code = ? AND scale = ?", code, scale)


def first_asset(tx: Transaction) -> AssetRecord | None:
    """The asset that the server was begun with."""
    return ASSETS.find(tx, "WHERE id > 0 ORDER BY id LIMIT 1")


def ensure_asset(tx: Transaction, code: str, scale: int) -> AssetRecord:
    """The asset, made on first use."""
    tx.execute("INSERT INTO asset (code, scale) VALUES (?, ?) ON CONFLICT DO NOTHING", (code, scale))
    asset = find_asset(tx, code, scale)
    assert asset is not None
    return asset


def list_codes(tx: Transaction) -> Sequence[str]:
    """The currencies in use, each once."""
    return [code for (code,) in tx.execute("SELECT DISTINCT code FROM asset ORDER BY code")]


def list_assets(tx: Transaction) -> Sequence[AssetRecord]:
    return ASSETS.list(tx, "ORDER BY code, scale")


def set_rate(tx: Transaction, base: str, counter: str, rate: str, now: int) -> None:
    """One unit of `base` buys `rate` units of `counter`, an exact decimal text, until further notice.

    A rate of limited time for the way back goes, so that the way back is the inverse of this one.
    """
    RATES.replace(tx, RateRecord(base, counter, rate, now))
    tx.execute(f"DELETE FROM exchange_rate {OF_PAIR} AND expires_at IS NOT NULL", (counter, base))


def refresh_rate(tx: Transaction, rate: RateRecord) -> None:
    """Stores a rate that holds until its `expires_at`, unless one without end is set for this way or the way back."""
    known = find_rate(tx, rate.base, rate.counter), find_rate(tx, rate.counter, rate.base)
    if all(one is None or one.expires_at is not None for one in known):
        RATES.replace(tx, rate)


def remove_rate(tx: Transaction, base: str, counter: str) -> bool:
    """Whether there was such a rate."""
    return tx.execute(f"DELETE FROM exchange_rate {OF_PAIR}", (base, counter)).rowcount > 0


def find_rate(tx: Transaction, base: str, counter: str) -> RateRecord | None:
    return RATES.find(tx, OF_PAIR, base, counter)


def list_rates(tx: Transaction) -> Sequence[RateRecord]:
    return RATES.list(tx, "ORDER BY base_code, counter_code")
