"""One search for everything that has a page, by what an operator knows of it: a name, an address, an amount, an id.

Each word must be found, in whatever order; words in quotes are one.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from string import ascii_lowercase, ascii_uppercase
from typing import Annotated, Any, Final, Protocol, TypeVar
from urllib.parse import unquote, urlencode

from payres.core.protocol.amounts import MAX_LEDGER, describe_amount, parse_decimal
from payres.core.protocol.errors import InvalidAmount, InvalidReceiver
from payres.core.protocol.urls import ADMIN_ROOT
from payres.core.protocol.visible import visible_name, visible_text
from payres.core.protocol.wire import Resource
from payres.core.store.accounts import AssetRecord, list_assets
from payres.core.store.audit import AUDIT
from payres.core.store.grants import GRANTS, GrantRecord
from payres.core.store.rows import Table
from payres.core.store.wallets import WalletRecord, find_wallet
from payres.core.store.work import Work
from payres.html.forms import typed_url
from payres.html.typed_amounts import typed_decimal
from payres.interledger.store.peers import list_peers
from payres.operator.api_keys import API_KEY, ApiKey, key_of_actor
from payres.operator.audit import ENTRY, AuditEntry
from payres.operator.declared.declarations import CommandLine, operation
from payres.operator.declared.inputs import Name, said
from payres.operator.declared.shapes import Cell, Column, Shape, labelled
from payres.operator.grants import GRANT, Grant
from payres.operator.payments import PAYMENT, Payment
from payres.operator.peers import PEER, Peer
from payres.operator.standing_orders import ORDER, StandingOrder
from payres.operator.store import search as store
from payres.operator.store.all_payments import PAYMENTS, PaymentRecord, read_payee
from payres.operator.store.api_keys import API_KEYS
from payres.operator.store.search import Word, Worth, find_matches, find_named
from payres.operator.wallets import WALLET, Wallet
from payres.operator.webhooks import WEBHOOK, Webhook
from payres.people.store.standing_orders import ORDERS
from payres.webhooks.store.webhooks import WEBHOOKS

MOST: Final = 20  # rows of a kind
MOST_WORDS: Final = 6  # each is looked for; what follows is one with the last
# A program finds what its key may read.
READING: Final = "wallets:read|payments:read|grants:read|peers:read|webhooks:read|keys:read|audit:read"
WORD: Final = re.compile('"([^"]*)"|(\\S+)')
RANGE: Final = re.compile(r"(.+)\.\.(.+)")  # of amounts: 8.00..9.00
LOWERED: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
_UUID: Final = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PART_OF_ID: Final = re.compile("[0-9a-f-]{6,35}")


class Record(Protocol):
    @property
    def id(self) -> int | str: ...


R = TypeVar("R", bound=Record)


class PayeeElsewhere(Resource, frozen=True, kw_only=True):
    """A wallet on another server, with the name that its server gave, and the number of `payments` from here to it
    among the newest 10,000: `arrived` of them in part at least, `sent` in all, by currency."""

    id: str
    name: str | None
    payments: int
    arrived: int
    sent: list[str]


class SearchResults(Resource, frozen=True, kw_only=True):
    """At most twenty of each kind, newest first, before them what has this very id, path or name. `more` names the
    kinds of which there are more. Texts and amounts are looked for in the newest 10,000 of a kind, and in as many
    payments of the wallets that a word names."""

    wallets: list[Wallet]
    wallets_elsewhere: list[PayeeElsewhere]
    payments: list[Payment]
    orders: list[StandingOrder]
    grants: list[Grant]
    peers: list[Peer]
    webhooks: list[Webhook]
    api_keys: list[ApiKey]
    changes: list[AuditEntry]
    more: list[str]


def words_of(text: str) -> Sequence[str]:
    """The words of what was typed."""
    found = [quoted or plain for quoted, plain in WORD.findall(visible_text(text)) if quoted.strip() or plain]
    return [*found[: MOST_WORDS - 1], *([" ".join(found[MOST_WORDS - 1 :])] if len(found) >= MOST_WORDS else [])]


def read_words(work: Work, text: str) -> Sequence[Word]:
    """The words of what was typed that are not empty, with what they may stand for here."""
    return [one for typed in words_of(text) if (one := _read_word(work, typed)).text]


def _read_word(work: Work, typed: str) -> Word:
    typed = " ".join(typed.split()).removeprefix("…")
    text = typed.casefold()
    # SQLite knows the case of ASCII letters only, so it is asked for the usual spellings of others.
    spelt = [text] if text.isascii() else [text, typed, text.upper(), text.title()]
    forms = [*dict.fromkeys(one.translate(LOWERED) for one in spelt)]
    named = store.wallets_named(work, text, forms) if text else ()
    wallets, paths = [id for id, _ in named], [path for _, path in named]
    worths = [*_worths(list_assets(work), text)]
    return Word(text, forms, _UUID.findall(text), bool(_PART_OF_ID.fullmatch(text)), worths, wallets, paths)


def _worths(assets: Sequence[AssetRecord], text: str) -> Iterable[Worth]:
    """The amounts that a text may be, as pages write them, or a range between two."""
    bounds = match.groups() if (match := RANGE.fullmatch(text)) else (text, text)
    for asset in assets:
        with suppress(ValueError, InvalidAmount):
            least, most = (parse_decimal(typed_decimal(one, ".", asset.asset, ","), asset.asset) for one in bounds)
            if 0 < most <= MAX_LEDGER:
                yield Worth(asset, least, most)


def amounts_of(word: Word) -> Sequence[str]:
    """How pages write the amount that a word is."""
    shown = (describe_amount(one.least, one.asset.asset).partition(" ")[2] for one in word.worths)
    return [*dict.fromkeys(shown)]


def _text(results: SearchResults) -> str:
    parts = []
    for name, (label, _, shape, _) in SEARCHED.items():
        rows = [[column.cell(one).printed for column in shape.on_pages] for one in getattr(results, name)]
        lines = [(first, ", ".join(filter(None, rest))) for first, *rest in rows]
        heading = f"{label}, and more:" if name in results.more else f"{label}:"
        parts += [f"{heading}\n{labelled(*lines)}"] if lines else []
    return "\n\n".join(parts) or "Nothing was found"


@operation(f"GET /search {READING}", command=CommandLine("search TEXT", 'alice\n"bob 12.50"', text=_text))
def search(
    work: Work,
    q: Annotated[Name, said("Words that must be in names, addresses, notes, references or ids; or amounts.")],
) -> SearchResults:
    """Find wallets, payments, standing orders, grants, peers, webhooks, API keys and changes."""
    return results_of(work, find_all(work, read_words(work, q)))


def results_of(work: Work, found: Mapping[str, Sequence[object]]) -> SearchResults:
    """The answer with these records by kind."""
    shapes = {name: shape for name, (_, _, shape, _) in SEARCHED.items()}
    shown: dict[str, list[Any]] = {
        name: [shapes[name].show(work, one) if shapes[name].show else one for one in rows[:MOST]]
        for name, rows in found.items()
    }
    return SearchResults(**shown, more=[name for name, rows in found.items() if len(rows) > MOST])


def find_all(
    work: Work, words: Sequence[Word], alone: Sequence[tuple[Word, Mapping[str, Sequence[object]]]] = ()
) -> Mapping[str, Sequence[object]]:
    """The records with every word, of each kind that whoever searches may see: one more than are shown if there are.
    `alone` has what was found with one of the words, and no kind is looked at in which that was nothing."""
    key = key_of_actor(work)

    def is_there(name: str, word: Word, rows: Mapping[str, Sequence[object]]) -> bool:
        # More payments are looked at of a wallet that another word names.
        return bool(rows[name]) or (name == "payments" and any(one.wallets for one in words if one.text != word.text))

    return {
        name: look(work, words)[: MOST + 1]
        if words and (key is None or scope in key.scopes) and all(is_there(name, *one) for one in alone)
        else []
        for name, (_, scope, _, look) in SEARCHED.items()
    }


def _wallets(work: Work, words: Sequence[Word]) -> Sequence[WalletRecord]:
    of_path = find_wallet(work, _path(work, words[0].text)) if len(words) == 1 else None
    found = [*([of_path] if of_path else []), *_among(words, store.newest_wallets(work), "path", "public_name")]
    whole = " ".join(one.text for one in words)
    found.sort(key=lambda one: (one.public_name or "").casefold() != whole and one != of_path)
    return _once(found)


def _path(work: Work, text: str) -> str:
    path = None
    with suppress(InvalidReceiver):
        path = work.urls.wallet_path(typed_url(work.urls, text))
    return unquote((path or text).removeprefix("admin/wallets/"))


def _payments(work: Work, words: Sequence[Word]) -> Sequence[PaymentRecord]:
    look = partial(find_matches, work, PAYMENTS, words, store.of_payment, MOST + 1)
    rows = [*look(store.OF_PAYMENTS)]
    wallets = [id for word in words for id in word.wallets[-MOST:]][:MOST]
    for id in wallets:  # by its index, so that they need not be among the newest
        rows += look(of_wallet=id, share=len(wallets))
    ids, end = {id for one in words for id in one.ids}, words[0].text
    rows.sort(key=lambda one: (one.id.endswith(end) or one.id in ids, one.id), reverse=True)
    return _once(rows)


def _elsewhere(work: Work, words: Sequence[Word]) -> Sequence[PayeeElsewhere]:
    payees, assets = dict[str, list[store.SentRecord]](), {one.id: one.asset for one in list_assets(work)}
    words = [one._replace(ids=(), is_part_of_id=False) for one in words]  # those of payments
    for one in find_matches(work, store.SENT, words, store.of_sent, store.NEWEST):
        payees.setdefault(read_payee(one.payee)[1], []).append(one)
    return [
        PayeeElsewhere(
            id=address,
            name=visible_name(read_payee(rows[0].payee)[0], address),
            payments=len(rows),
            arrived=sum(one.delivered > 0 for one in rows),
            sent=[
                describe_amount(sum(one.sent for one in rows if one.asset_id == id), assets[id])
                for id in dict.fromkeys(one.asset_id for one in rows)
            ],
        )
        for address, rows in payees.items()
    ]


def _grants(work: Work, words: Sequence[Word]) -> Sequence[GrantRecord]:
    named = (
        find_named(work, store.OF_GRANTS, words[0].ids) if len(words) == 1 else ()
    )  # also of those nobody decides on
    found = find_matches(work, store.GRANTS_OF_CLIENTS, words, store.of_grant, MOST + 1, store.OF_GRANTS)
    return _once([*(GRANTS.by_id(work, one) for one in named), *found])


def _once(records: Iterable[R]) -> Sequence[R]:
    return [*{one.id: one for one in records}.values()]


def _rows(table: Table[Any], met_by: Callable[[Word], store.Condition]) -> Callable[..., Sequence[Any]]:
    """Of a table of which the newest rows are looked at."""
    return lambda work, words: _once(find_matches(work, table, words, met_by, MOST + 1))


def _among(words: Sequence[Word], records: Sequence[R], *fields: str) -> Sequence[R]:
    """The records that have every word in one of these fields, in any case of its letters, or in their id."""

    def has(one: R, texts: Sequence[str], word: Word) -> bool:
        is_named = str(one.id) in word.ids or (word.is_part_of_id and word.text in str(one.id))
        return is_named or any(word.text in text for text in texts)

    texts = ([str(getattr(one, name) or "").casefold() for name in fields] for one in records)
    found = zip(records, texts, strict=True)
    return [one for one, said_there in found if all(has(one, said_there, word) for word in words)]


def _few(records: Callable[[Work], Sequence[R]], *fields: str) -> Callable[..., Sequence[R]]:
    """Of a kind with so few that all are looked at."""
    return lambda work, words: _among(words, records(work), *fields)


def _link(one: PayeeElsewhere) -> str:
    return f"{ADMIN_ROOT}/payments?{urlencode({'counterpart': one.id})}"


def _count(one: PayeeElsewhere) -> str:
    arrived = "none" if not one.arrived else "all" if one.arrived == one.payments else str(one.arrived)
    return f"{one.payments} payment{'s' * (one.payments != 1)} from here, {arrived} arrived"


ELSEWHERE: Final = Shape(
    None,
    Column("Address", lambda one: Cell(one.id.partition("://")[2], "long", _link(one)), section="payments"),
    Column("Name", "name", "long", titles=True),
    Column("Payments", _count),
    Column("Paid in all", lambda one: Cell(", ".join(one.sent), "number"), "number"),
)
# By the members of SearchResults: what they are called, the scope of keys that may see them, their shape, and how they
# are found.
SEARCHED: Final[Mapping[str, tuple[str, str, Shape, Callable[[Work, Sequence[Word]], Sequence[object]]]]] = {
    "wallets": ("Wallets", "wallets:read", WALLET, _wallets),
    "wallets_elsewhere": ("Wallets elsewhere", "payments:read", ELSEWHERE, _elsewhere),
    "payments": ("Payments", "payments:read", PAYMENT, _payments),
    "orders": ("Standing orders", "payments:read", ORDER, _rows(ORDERS, store.of_order)),
    "grants": ("Grants", "grants:read", GRANT, _grants),
    "peers": ("Peers", "peers:read", PEER, _few(list_peers, "name", "ilp_address", "url", "note")),
    "webhooks": ("Webhooks", "webhooks:read", WEBHOOK, _few(WEBHOOKS.list, "url", "name")),
    "api_keys": ("API keys", "keys:read", API_KEY, _few(lambda work: API_KEYS.list(work)[::-1], "name")),
    "changes": ("Changes", "audit:read", ENTRY, _rows(AUDIT, store.of_change)),
}
