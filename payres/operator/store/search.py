"""SQL of the search of operators.

No index helps to find a part of a text, so it is looked for in the newest rows alone, along the primary key. Texts are
compared with `instr`, because LIKE has wildcards.
"""

import json
from collections.abc import Callable, Iterable, Sequence
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


class SentRecord(msgspec.Struct, frozen=True):
    """What was paid to a wallet elsewhere, once; `payee` as JSON."""

    id: str
    payee: str
    asset_id: int
    sent: int
    delivered: int


_ASSET: Final = "(SELECT asset_id FROM wallet_address WHERE id = p.wallet_address_id)"
SENT: Final = Table(SentRecord, "outgoing_payment p", prefix="p.", payee=PAYEE, asset_id=_ASSET)


_OUTGOING: Final = "p.direction = 'outgoing' AND EXISTS (SELECT 1 FROM outgoing_payment WHERE id = p.id"


class Worth(NamedTuple):
    """The amounts that a word may stand for: from the least to the most of an asset, in its minor unit."""

    asset: AssetRecord
    least: int
    most: int


class Word(NamedTuple):
    """What must be found, in lower case; as SQL compares it; the ids in it, whether it may be a part of one, and the
    amounts that it may be; the wallets that it names, by their ids and paths."""

    text: str
    forms: Sequence[str]
    ids: Sequence[str]
    is_part_of_id: bool
    worths: Sequence[Worth]
    wallets: Sequence[int]
    paths: Sequence[str]


def find_matches(
    tx: Transaction,
    table: Table[R],
    words: Sequence[Word],
    met_by: Callable[[Word], Condition],
    most: int,
    named: Sequence[str] = (),
    of_wallet: int | None = None,
    share: int = 1,
) -> Sequence[R]:
    """Rows that meet the condition of every word: those with an id in the words, by these statements if they are given;
    then up to `most` of the NEWEST, newest first, or of the newest payments of a wallet, a `share` of so many."""
    key, (of, own) = table.key, ("p.wallet_address_id = ?", [of_wallet]) if of_wallet else ("1", [])
    ids = [find_named(tx, named, one.ids) if named else one.ids for one in words]
    met = [_any_of(_keyed(key, one, keys), met_by(one)) for one, keys in zip(words, ids, strict=True)]
    where, values = "".join(f" AND ({sql})" for sql, _ in met), [value for _, values in met for value in values]
    first = [row for keys in ids for id in keys for row in table.list(tx, f"WHERE {key} = ?{where}", id, *values)]
    before = f"SELECT {key} FROM {table.source} WHERE {of} AND {key} < ? ORDER BY {key} DESC LIMIT 1 OFFSET ?"
    [floor] = tx.execute(before, (*own, AFTER_ALL, NEWEST // share)).fetchone() or [""]
    newest = f"WHERE {of} AND {key} > ?{where} ORDER BY {key} DESC LIMIT ?"
    return [*first, *table.list(tx, newest, *own, floor, *values, most)]


def find_named(tx: Transaction, statements: Sequence[str], ids: Sequence[str]) -> Sequence[str]:
    """The ids that OF_PAYMENTS or OF_GRANTS find by these."""
    return [name for one in ids for sql in statements for (name,) in tx.execute(sql, (one,))]


def newest_wallets(tx: Transaction) -> Sequence[WalletRecord]:
    return WALLETS.list(tx, "WHERE w.id > 0 ORDER BY w.id DESC LIMIT ?", NEWEST)


def wallets_named(tx: Transaction, text: str, forms: Sequence[str]) -> Sequence[tuple[int, str]]:
    """The ids and paths of the wallets with this path, and of the newest with a part of it or of the name like this, or
    in the currency of this code."""
    named, values = _contains(["w.path", "w.public_name"], forms)
    before = "SELECT id FROM wallet_address WHERE id > 0 ORDER BY id DESC LIMIT 1 OFFSET ?"
    [floor] = tx.execute(before, (NEWEST,)).fetchone() or [0]
    columns = "SELECT w.id, w.path FROM wallet_address w WHERE"
    code = "(SELECT lower(code) FROM asset WHERE id = w.asset_id) = ?"
    newest = f"{columns} w.id > ? AND w.path <> ? AND ({named} OR {code})"
    sql = f"{columns} w.path = ? UNION ALL {newest}"
    return tx.execute(sql, (text, floor, text, *values, text)).fetchall()


def of_payment(word: Word) -> Condition:
    """The payment has the word in the receiver, the note, or the name or address of its payer or payee; or it has moved
    such an amount, is to move it, or to deliver it."""
    payer, values = _of_wallet("p.wallet_address_id", word)
    payee, elsewhere = _contains_in_json(PAYEE, word.forms)
    return _any_of(
        _contains(["p.receiver"], word.forms),
        _contains_in_json("p.metadata", word.forms),
        (f"{USED} AND {payer}" if payer else "", values),
        _of_wallet("(SELECT wallet_address_id FROM incoming_payment WHERE id = p.incoming_payment_id)", word),
        (f"p.direction = 'outgoing' AND p.incoming_payment_id IS NULL AND ({payee})", elsewhere),
        (f"{_OUTGOING} AND lower(receive_code) = ?)", [word.text]),
        *map(_moved, word.worths),
    )


def of_sent(word: Word) -> Condition:
    """The payee elsewhere has the word in its name, its address or its purpose."""
    found, values = _contains_in_json(PAYEE, word.forms)
    return f"p.incoming_payment_id IS NULL AND ({found})", values


def of_order(word: Word) -> Condition:
    """The standing order has the word in its payee, its note or its wallet, or is of such an amount."""
    of = "iif(fixed = 'receive', receive_code = ? AND receive_scale = ?, EXISTS (SELECT 1 FROM wallet_address"
    of = f"value BETWEEN ? AND ? AND {of} WHERE id = wallet_address_id AND asset_id = ?))"
    amounts: list[Condition] = [
        (of, [one.least, one.most, one.asset.code, one.asset.scale, one.asset.id]) for one in word.worths
    ]
    words = _contains(["payee", "payee_name", "note"], word.forms)
    return _any_of(words, _of_wallet("standing_order.wallet_address_id", word), *amounts)


def of_grant(word: Word) -> Condition:
    """The grant has the word in its client, its wallet, or the payee of the bill that it pays, as it was shown."""
    bill = "(SELECT coalesce(name || ' ', '') || address || ' ' || purpose FROM remote_bill WHERE grant_id = g.id)"
    words = _contains(["g.client_name", "c.identity", bill], word.forms)
    return _any_of(words, _of_wallet("g.wallet_address_id", word))


def of_change(word: Word) -> Condition:
    """The change has the word in what was done to what, in its details, or in the wallet that it is about; or it is of
    such an amount."""
    exact = [(one.least, one.asset.asset) for one in word.worths if one.least == one.most]
    amounts = [f'"{describe_amount(value, asset)}"' for value, asset in exact]
    amounts += [f'"{format_decimal(value, asset)} {asset.code}"' for value, asset in exact]
    is_amount = bool(word.worths) and not word.text.isdigit()  # 7.50 is not found in 17.50
    return _any_of(
        _contains(["actor", "action", "object"], word.forms),
        _of_wallet("audit.object", word, is_path=True),
        _contains(["details"], amounts),
        _contains_in_json("details", () if is_amount else word.forms),
    )


def _keyed(key: str, word: Word, ids: Sequence[str]) -> Condition:
    """The key is one of these, or has the word if it may be a part of an id."""
    part = _contains([key] * word.is_part_of_id, word.forms)
    return _any_of((" OR ".join(f"{key} = ?" for _ in ids), ids), part)


def _of_wallet(column: str, word: Word, *, is_path: bool = False) -> Condition:
    """The column has the id, or the path, of a wallet that the word names."""
    keys = word.paths if is_path else word.wallets
    return (f"{column} IN (SELECT value FROM json_each(?))", [json.dumps(keys)]) if keys else ("", [])


def _moved(worth: Worth) -> Condition:
    between, asset = (worth.least, worth.most), worth.asset
    own = "EXISTS (SELECT 1 FROM wallet_address WHERE id = p.wallet_address_id AND asset_id = ?)"
    moved = "p.moved BETWEEN ? AND ? OR cast(p.amount AS integer) BETWEEN ? AND ?"
    arrives = "receive BETWEEN ? AND ? AND receive_code = ? AND receive_scale = ?"
    there = f"{_OUTGOING} AND {arrives})"
    return f"({moved}) AND {own} OR {there}", [*between, *between, asset.id, *between, asset.code, asset.scale]


def _any_of(*conditions: Condition) -> Condition:
    given = [one for one in conditions if one[0]]
    return " OR ".join(f"({sql})" for sql, _ in given), [value for _, values in given for value in values]


def _contains(columns: Iterable[str], texts: Iterable[str]) -> Condition:
    """One of the texts is a part of one of the columns, without regard to the case of ASCII letters."""
    pairs = [(column, text) for column in columns for text in texts]
    found = " OR ".join(f"instr(lower({column}), lower(?)) > 0" for column, _ in pairs)
    return found, [text for _, text in pairs]


def _contains_in_json(column: str, texts: Iterable[str]) -> Condition:
    """The same of the texts in a column of JSON, however they are escaped there."""
    return _contains([column], {json.dumps(text, ensure_ascii=one)[1:-1] for text in texts for one in (True, False)})
