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


COLUMNS = "id, code, scale, fee_fixed, fee_basis_points"


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


def list_assets(tx: Transaction) -> Sequence[AssetRecord]:
    return [AssetRecord(*row) for row in tx.execute(f"SELECT {COLUMNS} FROM asset ORDER BY code, scale")]


def set_fee(tx: Transaction, asset_id: int, fixed: int, basis_points: int) -> None:
    tx.execute("UPDATE asset SET fee_fixed = ?, fee_basis_points = ? WHERE id = ?", (fixed, basis_points, asset_id))


def set_rate(tx: Transaction, base: str, counter: str, rate: str, now: int) -> None:
    """One unit of `base` buys `rate` units of `counter`; rate is an exact decimal text."""
    tx.execute(
        "INSERT INTO exchange_rate (base_code, counter_code, rate, set_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET rate = excluded.rate, set_at = excluded.set_at",
        (base, counter, rate, now),
    )


def find_rate(tx: Transaction, base: str, counter: str) -> str | None:
    row = tx.execute(
        "SELECT rate FROM exchange_rate WHERE base_code = ? AND counter_code = ?", (base, counter)
    ).fetchone()
    return row[0] if row else None


def list_rates(tx: Transaction) -> Sequence[tuple[str, str, str, int]]:
    """Rows of (base code, counter code, rate, set at)."""
    return tx.execute(
        "SELECT base_code, counter_code, rate, set_at FROM exchange_rate ORDER BY base_code, counter_code"
    ).fetchall()
