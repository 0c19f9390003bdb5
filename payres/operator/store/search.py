"""SQL of the search of operators.

No index helps to find a part of a text, so it is looked for in the newest rows alone, along the primary key. Texts are
compared with `instr`, because LIKE has wildcards.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from payres.core.protocol.amounts import describe_amount, format_decimal
from payres.core.store.accounts import AssetRecord
from payres.core.store.grants import GrantRecord
from payres.core.store.rows import AFTER_ALL, R, Table
from payres.core.store.wallets import WALLETS, WalletRecord
from payres.core.store.work import Transaction
from payres.operator.store.all_payments import PAYEE, USED

NEWEST: Final = 10_000  # rows of a table in which texts are looked for, which takes some 20 ms for each word

Condition = tuple[str, Sequence[str | int]]  # in SQL, with its values
ANY_ROW: Final[Condition] = "1", ()
# Only the grants that owners decide on, with their clients: the others are far more, and say little.
GRANTS_OF_CLIENTS: Final = Table(
    GrantRecord,
    'interaction i CROSS JOIN "grant" g ON g.id = i.grant_id JOIN client c ON c.id = g.client_id',
    prefix="g.",
    key="i.grant_id",
)
# The payee of the bill that a grant pays, as the consent page showed it.
BILL_OF_GRANT: Final = (
    "(SELECT coalesce(name || ' ', '') || address || ' ' || purpose FROM remote_bill WHERE grant_id = g.id)"
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
_RECEIVER: Final = "(SELECT wallet_address_id FROM incoming_payment WHERE id = p.incoming_payment_id)"


class SentRecord(msgspec.Struct, frozen=True):
    """What was paid to a wallet elsewhere, once; `payee` as JSON."""

    id: str
    payee: str
    asset_id: int
    sent: int
    delivered: int


_ASSET: Final = "(SELECT asset_id FROM wallet_address WHERE id = p.wallet_address_id)"
SENT: Final = Table(SentRecord, "outgoing_payment p", prefix="p.", payee=PAYEE, asset_id=_ASSET)
ELSEWHERE: Final[Condition] = "p.incoming_payment_id IS NULL", ()


class Worth(NamedTuple):
    """The amounts that a word may stand for: from the least to the most of an asset, in its minor unit."""

    asset: AssetRecord
    least: int
    most: int


def any_of(*conditions: Condition) -> Condition:
    given = [one for one in conditions if one[0]]
    return " OR ".join(f"({sql})" for sql, _ in given), [value for _, values in given for value in values]


def contains(columns: Iterable[str], texts: Iterable[str]) -> Condition:
    """One of the texts is a part of one of the columns, without regard to the case of ASCII letters."""
    pairs = [(column, text) for column in columns for text in texts]
    found = " OR ".join(f"instr(lower({column}), lower(?)) > 0" for column, _ in pairs)
    return found, [text for _, text in pairs]


def contains_in_json(column: str, texts: Iterable[str]) -> Condition:
    """The same of the texts in a column of JSON, however they are escaped there."""
    return contains([column], {json.dumps(text, ensure_ascii=one)[1:-1] for text in texts for one in (True, False)})


def of_wallet(column: str, texts: Sequence[str], key: str = "id") -> Condition:
    """The column has the key of a wallet with the text in its path or name, or in the currency of this code."""
    named, values = contains(["w.path", "w.public_name"], texts)
    code = "(SELECT lower(code) FROM asset WHERE id = w.asset_id) = ?"
    return f"EXISTS (SELECT 1 FROM wallet_address w WHERE w.{key} = {column} AND ({named} OR {code}))", [
        *values,
        texts[0],
    ]


def of_payment(texts: Sequence[str], worths: Sequence[Worth]) -> Condition:
    """The payment has the text in the receiver, the note, or the name or address of its payer or payee; or it has moved
    such an amount, is to move it, or to deliver it."""
    payer, values = of_wallet("p.wallet_address_id", texts)
    return any_of(
        contains(["p.receiver"], texts),
        contains_in_json("p.metadata", texts),
        (f"{USED} AND {payer}", values),
        of_wallet(_RECEIVER, texts),
        of_payee(texts),
        *map(_moved, worths),
    )


def _moved(worth: Worth) -> Condition:
    between = worth.least, worth.most
    own = "EXISTS (SELECT 1 FROM wallet_address WHERE id = p.wallet_address_id AND asset_id = ?)"
    moved = "p.moved BETWEEN ? AND ? OR cast(p.amount AS integer) BETWEEN ? AND ?"
    arrives = "receive BETWEEN ? AND ? AND receive_code = ? AND receive_scale = ?"
    there = f"EXISTS (SELECT 1 FROM outgoing_payment WHERE id = p.id AND {arrives})"
    asset = worth.asset
    return f"({moved}) AND {own} OR {there}", [*between, *between, asset.id, *between, asset.code, asset.scale]


def of_grant(texts: Sequence[str]) -> Condition:
    """The grant has the text in its client, in its wallet, or in the payee of the bill that it pays."""
    own = of_wallet("g.wallet_address_id", texts)
    return any_of(contains(["g.client_name", "c.identity", BILL_OF_GRANT], texts), own)


def of_payee(texts: Sequence[str]) -> Condition:
    return contains_in_json(PAYEE, texts)


def of_order(texts: Sequence[str], worths: Sequence[Worth]) -> Condition:
    """The standing order has the text in its payee, its note or its wallet, or is of such an amount."""
    of = "iif(fixed = 'receive', receive_code = ? AND receive_scale = ?, EXISTS (SELECT 1 FROM wallet_address"
    of = f"value BETWEEN ? AND ? AND {of} WHERE id = wallet_address_id AND asset_id = ?))"
    amounts: list[Condition] = [
        (of, [one.least, one.most, one.asset.code, one.asset.scale, one.asset.id]) for one in worths
    ]
    return any_of(
        contains(["payee", "payee_name", "note"], texts), of_wallet("standing_order.wallet_address_id", texts), *amounts
    )


def of_change(texts: Sequence[str], worths: Sequence[Worth]) -> Condition:
    """The change has the text in its words, details, or the wallet that it is about; or it is of such an amount."""
    exact = [(one.least, one.asset.asset) for one in worths if one.least == one.most]
    amounts = [f'"{describe_amount(value, asset)}"' for value, asset in exact]
    amounts += [f'"{format_decimal(value, asset)} {asset.code}"' for value, asset in exact]
    is_amount = bool(worths) and not texts[0].isdigit()  # 7.50 is not found in 17.50
    return any_of(
        contains(["actor", "action", "object"], texts),
        of_wallet("audit.object", texts, "path"),
        contains(["details"], amounts),
        *([] if is_amount else [contains_in_json("details", texts)]),
    )


def find(
    tx: Transaction,
    table: Table[R],
    words: Sequence[Condition],
    most: int,
    among: Condition = ANY_ROW,
    share: int = 1,
) -> Sequence[R]:
    """Up to `most` rows, newest first, that meet the conditions of every word: of the NEWEST of those `among` which
    they are, or of a `share` of so many."""
    key, (of, own) = table.key, among
    before = f"SELECT {key} FROM {table.source} WHERE {of} AND {key} < ? ORDER BY {key} DESC LIMIT 1 OFFSET ?"
    [floor] = tx.execute(before, (*own, AFTER_ALL, NEWEST // share)).fetchone() or [""]
    met = "".join(f" AND ({sql})" for sql, _ in words)
    values = (value for _, values in words for value in values)
    where = f"WHERE {of} AND {key} > ?{met} ORDER BY {key} DESC LIMIT ?"
    return table.list(tx, where, *own, floor, *values, most)


def find_named(tx: Transaction, statements: Sequence[str], ids: Sequence[str]) -> Sequence[str]:
    """The ids that OF_PAYMENTS or OF_GRANTS find by these."""
    return [name for one in ids for sql in statements for (name,) in tx.execute(sql, (one,))]


def newest_wallets(tx: Transaction) -> Sequence[WalletRecord]:
    return WALLETS.list(tx, "WHERE w.id > 0 ORDER BY w.id DESC LIMIT ?", NEWEST)
