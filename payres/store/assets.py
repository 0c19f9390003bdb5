"""SQL of assets, their sending fees, and exchange rates."""

from collections.abc import Sequence

import msgspec

from payres.store.database import Transaction


class AssetRecord(msgspec.Struct, frozen=True):
    """A row of `asset`. fee_fixed is in the minor unit."""

    id: int
    code: str
    scale: int
    fee_fixed: int
    fee_basis_points: int


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


COLUMNS = "id, code, scale, fee_fixed, fee_basis_points"
RATE_COLUMNS = "base_code, counter_code, rate, set_at, expires_at"


def find_asset(tx: Transaction, code: str, scale: int) -> AssetRecord | None:
    row = tx.execute(f"SELECT {COLUMNS} FROM asset WHERE code = ? AND scale = ?", (code, scale)).fetchone()
    return AssetRecord(*row) if row else None


def asset_by_id(tx: Transaction, asset_id: int) -> AssetRecord:
    return AssetRecord(*tx.execute(f"SELECT {COLUMNS} FROM asset WHERE id = ?", (asset_id,)).fetchone())


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
    return [AssetRecord(*row) for row in tx.execute(f"SELECT {COLUMNS} FROM asset ORDER BY code, scale")]


def set_fee(tx: Transaction, asset_id: int, fixed: int, basis_points: int) -> None:
    tx.execute("UPDATE asset SET fee_fixed = ?, fee_basis_points = ? WHERE id = ?", (fixed, basis_points, asset_id))


def set_rate(tx: Transaction, base: str, counter: str, rate: str, now: int) -> None:
    """One unit of `base` buys `rate` units of `counter`, an exact decimal text, until further notice.

    A rate of limited time for the way back goes, so that the way back is the inverse of this one.
    """
    tx.execute(
        "INSERT INTO exchange_rate (base_code, counter_code, rate, set_at, expires_at) VALUES (?, ?, ?, ?, NULL)"
        " ON CONFLICT DO UPDATE SET rate = excluded.rate, set_at = excluded.set_at, expires_at = NULL",
        (base, counter, rate, now),
    )
    tx.execute(
        "DELETE FROM exchange_rate WHERE base_code = ? AND counter_code = ? AND expires_at IS NOT NULL", (counter, base)
    )


def refresh_rate(tx: Transaction, rate: RateRecord) -> None:
    """Keeps a rate that holds until its `expires_at`, unless one without end is set for this way or the way back."""
    back = find_rate(tx, rate.counter, rate.base)
    if back is not None and back.expires_at is None:
        return
    tx.execute(
        "INSERT INTO exchange_rate (base_code, counter_code, rate, set_at, expires_at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET rate = excluded.rate, set_at = excluded.set_at, expires_at = excluded.expires_at"
        " WHERE exchange_rate.expires_at IS NOT NULL",
        (rate.base, rate.counter, rate.rate, rate.set_at, rate.expires_at),
    )


def remove_rate(tx: Transaction, base: str, counter: str) -> bool:
    """Whether there was such a rate."""
    return (
        tx.execute("DELETE FROM exchange_rate WHERE base_code = ? AND counter_code = ?", (base, counter)).rowcount > 0
    )


def find_rate(tx: Transaction, base: str, counter: str) -> RateRecord | None:
    row = tx.execute(
        f"SELECT {RATE_COLUMNS} FROM exchange_rate WHERE base_code = ? AND counter_code = ?", (base, counter)
    ).fetchone()
    return RateRecord(*row) if row else None


def list_rates(tx: Transaction) -> Sequence[RateRecord]:
    rows = tx.execute(f"SELECT {RATE_COLUMNS} FROM exchange_rate ORDER BY base_code, counter_code")
    return [RateRecord(*row) for row in rows]
