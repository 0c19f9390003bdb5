"""SQL of one owner who takes over the wallets of another."""

from typing import Final

from payres.core.store.rows import number
from payres.core.store.work import Transaction

# What an owner has besides wallets, and ends with the owner.
ENDS: Final = (
    *("session", "known_browser", "password_link", "half_sign_in"),
    *("totp", "recovery_code", "passkey", "factor_removal", "sign_in"),
)


def has_second_factor(tx: Transaction, owner_id: int) -> bool:
    """Whether an owner signs in with more than a password."""
    codes = number(tx, "SELECT count(*) FROM totp WHERE owner_id = ? AND confirmed_at IS NOT NULL", owner_id)
    return bool(codes or number(tx, "SELECT count(*) FROM passkey WHERE owner_id = ?", owner_id))


def take_over(tx: Transaction, owner_id: int, other_id: int) -> None:
    """Gives the wallets of the other to the owner, and deletes the other with all that signs in to it."""
    tx.execute("UPDATE wallet_address SET owner_id = ? WHERE owner_id = ?", (owner_id, other_id))
    for table in ENDS:
        tx.execute(f"DELETE FROM {table} WHERE owner_id = ?", (other_id,))
    tx.execute("DELETE FROM owner WHERE id = ?", (other_id,))
