"""SQL of the search of operators.

No index helps to find a part of a text, so it is looked for in the newest rows alone, along the primary key. Texts are
compared with `instr`, because LIKE has wildcards.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Final

from payres.core.store.grants import GrantRecord
from payres.core.store.rows import AFTER_ALL, R, Table
from payres.core.store.wallets import WALLETS, WalletRecord
from payres.core.store.work import Transaction

NEWEST: Final = 10_000  # rows of a table in which texts are looked for, which takes some 20 ms

# Only the grants that owners decide on, with their clients: the others are far more, and say little.
GRANTS_OF_CLIENTS: Final = Table(
    GrantRecord,
    'interaction i CROSS JOIN "grant" g ON g.id = i.grant_id JOIN client c ON c.id = g.client_id',
    prefix="g.",
    key="i.grant_id",
)
# The id of a payment by its own, or by that of its quote, a packet or a refund.
OF_PAYMENTS: Final = (
    "SELECT id FROM outgoing_payment WHERE id = ?",
    "SELECT id FROM incoming_payment WHERE id = ?",
    "SELECT id FROM outgoing_payment WHERE quote_id = ?",
    "SELECT outgoing_payment_id FROM packet WHERE outgoing_payment_id IS NOT NULL AND id = ?",
    "SELECT incoming_payment_id FROM refund WHERE id = ?",
)
# The id of a grant by its own, or by that of its consent page or a token.
OF_GRANTS: Final = (
    'SELECT id FROM "grant" WHERE id = ?',
    "SELECT grant_id FROM interaction WHERE id = ?",
    "SELECT grant_id FROM access_token WHERE id = ?",
)


Condition = tuple[str, Sequence[str | int]]  # in SQL, with its values


def contains(columns: Iterable[str], texts: Iterable[str]) -> Condition:
    """One of the texts is a part of one of the columns, without regard to the case of ASCII letters."""
    pairs = [(column, text) for column in columns for text in texts]
    found = " OR ".join(f"instr(lower({column}), lower(?)) > 0" for column, _ in pairs)
    return found, [text for _, text in pairs]


def contains_in_json(column: str, texts: Iterable[str]) -> Condition:
    """The same of the texts in a column of JSON, however they are escaped there."""
    return contains([column], {json.dumps(text, ensure_ascii=one)[1:-1] for text in texts for one in (True, False)})


def of_wallets(ids: Sequence[int]) -> Condition:
    """The grant is for one of these wallets."""
    return " OR ".join("g.wallet_address_id = ?" for _ in ids), ids


def worth(asset_id: int, value: int) -> Condition:
    """The payment has moved this amount of the asset, or is to move it."""
    of_asset = "EXISTS (SELECT 1 FROM wallet_address WHERE id = p.wallet_address_id AND asset_id = ?)"
    return f"(p.moved = ? OR p.amount = ?) AND {of_asset}", [value, str(value), asset_id]


def find_newest(tx: Transaction, table: Table[R], conditions: Iterable[Condition], most: int) -> Sequence[R]:
    """Up to `most` rows, newest first, of the NEWEST of the table, that meet one of the conditions."""
    given = [one for one in conditions if one[0]]
    before = f"SELECT {table.key} FROM {table.source} WHERE {table.key} < ? ORDER BY {table.key} DESC LIMIT 1 OFFSET ?"
    [floor] = tx.execute(before, (AFTER_ALL, NEWEST)).fetchone() or [""]
    met = " OR ".join(f"({sql})" for sql, _ in given)
    values = (value for _, values in given for value in values)
    return table.list(tx, f"WHERE {table.key} > ? AND ({met}) ORDER BY {table.key} DESC LIMIT ?", floor, *values, most)


def find_named(tx: Transaction, statements: Sequence[str], ids: Sequence[str]) -> Sequence[str]:
    """The ids that OF_PAYMENTS or OF_GRANTS find by these."""
    return [name for one in ids for sql in statements for (name,) in tx.execute(sql, (one,))]


def newest_wallets(tx: Transaction) -> Sequence[WalletRecord]:
    return WALLETS.list(tx, "WHERE w.id > 0 ORDER BY w.id DESC LIMIT ?", NEWEST)
