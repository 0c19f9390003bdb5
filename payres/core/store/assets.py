"""SQL of assets, their sending fees, and exchange rates."""

from collections.abc import Sequence

import msgspec

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import lasts
from payres.core.store.rows import Table
from payres.core.store.work import Transaction


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
    """A row of `exchange_rate`. Only rates of the rates service have an expires_at, not those of the operator."""

    base: str
    counter: str
    rate: str
    set_at: int
    expires_at: int | None = None

    def holds_at(self, now: int) -> bool:
        """Whether the rate has not expired."""
        return self.expires_at is None or lasts(self.expires_at, now, self.expires_at - self.set_at)


ASSETS = Table(AssetRecord, "asset")
RATES = Table(RateRecord, "exchange_rate", base="base_code", counter="counter_code")
OF_PAIR = "WHERE base_code = ? AND counter_code = ?"


def find_asset(tx: Transaction, code: str, scale: int) -> AssetRecord | None:
    return ASSETS.find(tx, "WHERE code = ? AND scale = ?", code, scale)


def first_asset(tx: Transaction) -> AssetRecord | None:
    """The asset that the server was set up with."""
    return ASSETS.find(tx, "WHERE id > 0 ORDER BY id LIMIT 1")


def ensure_asset(tx: Transaction, code: str, scale: int) -> AssetRecord:
    """The asset, created on first use."""
    tx.execute("INSERT INTO asset (code, scale) VALUES (?, ?) ON CONFLICT DO NOTHING", (code, scale))
    asset = find_asset(tx, code, scale)
    assert asset is not None
    return asset


def list_codes(tx: Transaction) -> Sequence[str]:
    """The distinct currency codes in use."""
    return [code for (code,) in tx.execute("SELECT DISTINCT code FROM asset ORDER BY code")]


def list_assets(tx: Transaction) -> Sequence[AssetRecord]:
    return ASSETS.list(tx, "ORDER BY code, scale")


def set_rate(tx: Transaction, base: str, counter: str, rate: str, now: int) -> None:
    """One unit of `base` buys `rate` units of `counter`, an exact decimal text, with no expiry.

    Deletes the opposite rate if it expires, so that the opposite direction uses the inverse of this one.
    """
    RATES.replace(tx, RateRecord(base, counter, rate, now))
    tx.execute(f"DELETE FROM exchange_rate {OF_PAIR} AND expires_at IS NOT NULL", (counter, base))


def refresh_rate(tx: Transaction, rate: RateRecord) -> None:
    """Stores a rate that is valid until its `expires_at`, unless the operator has set one in either direction."""
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
