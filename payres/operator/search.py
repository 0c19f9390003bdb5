"""One search for everything that has a page, by what an operator knows of it: a name, an address, an amount, an id."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, NamedTuple

from payres.core.protocol.urls import pointed
from payres.core.protocol.visible import visible_text
from payres.core.protocol.wire import Resource
from payres.core.store.accounts import AssetRecord, list_assets
from payres.core.store.grants import GRANTS
from payres.core.store.rows import PageQuery
from payres.core.store.server import AUDIT
from payres.core.store.wallets import WalletRecord
from payres.core.store.work import Work
from payres.html.language import Language, Mistyped, typed_amount
from payres.interledger.store.peers import list_peers
from payres.operator.api_keys import API_KEY, SCOPES, ApiKey
from payres.operator.audit import ENTRY, AuditEntry
from payres.operator.declarations import Name, operation, said
from payres.operator.grants import GRANT, Grant
from payres.operator.payments import PAYMENT, Payment
from payres.operator.peers import PEER, Peer
from payres.operator.shapes import Shape, labelled
from payres.operator.store import search as store
from payres.operator.store.all_payments import PAYMENTS, page_of_payments
from payres.operator.store.operators import API_KEYS, list_api_keys
from payres.operator.store.search import Condition, contains, find_newest
from payres.operator.wallets import WALLET, Wallet
from payres.operator.webhooks import WEBHOOK, Webhook
from payres.webhooks.store.webhooks import list_webhooks

MOST: Final = 20  # rows of a kind
# A program finds what its key may read.
READING: Final = "wallets:read|payments:read|grants:read|peers:read|webhooks:read|keys:read|audit:read"
_UUID: Final = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PART_OF_ID: Final = re.compile("[0-9a-f-]{6,35}")


class SearchResults(Resource, frozen=True, kw_only=True):
    """At most twenty of each kind, newest first, before them what has this very id, path or name. `more` names the
    kinds of which there are more, `partly` those of which only the newest 10,000 were searched."""

    wallets: list[Wallet]
    payments: list[Payment]
    grants: list[Grant]
    peers: list[Peer]
    webhooks: list[Webhook]
    api_keys: list[ApiKey]
    changes: list[AuditEntry]
    more: list[str]
    partly: list[str]


class Rows(NamedTuple):
    """The first records of a kind, one more than MOST if there are more; `is_all` unless only the newest were
    searched."""

    records: Sequence[Any]
    is_all: bool = True


class Sought(NamedTuple):
    """What is searched for: the text, in lower case too; the forms of it that SQL compares; the ids in it; and the
    wallets that have it in their path or name."""

    text: str
    lower: str
    forms: Sequence[str]
    ids: Sequence[str]
    wallets: Sequence[WalletRecord] = ()

    def among(self, records: Sequence[Any], *fields: str) -> Sequence[Any]:
        """The records that have it in one of these fields, in any case of its letters, or that it names by an id."""
        fields = (*fields, "id") if _PART_OF_ID.fullmatch(self.lower) else fields
        found = (any(self.lower in str(getattr(one, name)).casefold() for name in fields) for one in records)
        return [one for one, is_found in zip(records, found, strict=True) if is_found or str(one.id) in self.ids]

    def inside(self, key: str, *columns: str) -> Condition:
        """The condition that a column has it, or the key if it may be a part of an id."""
        return contains([*columns, *([key] if _PART_OF_ID.fullmatch(self.lower) else [])], self.forms)

    def inside_json(self, column: str) -> Condition:
        """The condition that a text in a column of JSON has it, however it is escaped there."""
        spelled = (json.dumps(form, ensure_ascii=is_ascii)[1:-1] for form in self.forms for is_ascii in (True, False))
        return contains([column], dict.fromkeys(spelled))


def _text(results: SearchResults) -> str:
    parts = []
    for name, (label, _, shape, _) in SEARCHED.items():
        rows = [[column.cell(one).printed for column in shape.on_pages] for one in getattr(results, name)]
        lines = [(first, ", ".join(filter(None, rest))) for first, *rest in rows]
        heading = f"{label}, and more:" if name in results.more else f"{label}:"
        parts += [f"{heading}\n{labelled(*lines)}"] if lines else []
    return "\n\n".join(parts) or "Nothing was found"


@operation("GET /search", READING, command="search TEXT", example="alice\n12.50", text=_text)
def search(
    work: Work, q: Annotated[Name, said("A part of a name or an address, an amount, an id or its end, or a note.")]
) -> SearchResults:
    """Find wallets, payments, grants, peers, webhooks, API keys and changes.

    TEXT is a part of a name or an address, an amount, an id or its end, or a note.
    """
    text = " ".join(visible_text(q).split())
    bare = text.removeprefix("…").casefold()
    # SQLite knows the case of ASCII letters only, so it is asked for the usual spellings of others.
    forms = [bare] if bare.isascii() else [*dict.fromkeys((bare, text, text.lower(), text.upper(), text.title()))]
    sought = Sought(text, bare, forms, _UUID.findall(bare))
    sought = sought._replace(wallets=_wallets(work, sought).records[:MOST])
    program, _, key_id = work.actor.partition(":")
    scopes = API_KEYS.by_id(work, key_id).scopes if program == "api" else SCOPES
    found: dict[str, Any] = {"more": [], "partly": []}
    for name, kind in SEARCHED.items():
        rows = kind.find(work, sought) if bare and kind.scope in scopes else Rows([])
        found[name] = [kind.shape.show(work, one) for one in rows.records[:MOST]]
        found["more"] += [name] if len(rows.records) > MOST else []
        found["partly"] += [] if rows.is_all else [name]
    return SearchResults(**found)


def _wallets(work: Work, sought: Sought) -> Rows:
    path = work.urls.wallet_path(str(pointed(sought.text)))
    beginning = sought.lower if path is None else path.removeprefix("admin/wallets/")
    newest = store.newest_wallets(work)
    found = [*store.wallets_below(work, beginning, MOST + 1), *sought.among(newest, "path", "public_name")]
    records = {one.id: one for one in found}.values()
    named = {sought.lower, beginning}
    exact_first = sorted(records, key=lambda one: not named & {one.path, (one.public_name or "").casefold()})
    return Rows(exact_first, len(newest) < store.NEWEST)


def _payments(work: Work, sought: Sought) -> Rows:
    """Those of the wallets too, which have an index."""
    named = [PAYMENTS.by_id(work, one) for name in sought.ids for one in store.payments_named(work, name)]
    of_wallets = [
        one
        for wallet in sought.wallets
        for one in page_of_payments(work, PageQuery(MOST + 1), work.now, wallet_id=wallet.id)[0]
    ]
    conditions = [sought.inside("p.id", store.REMOTE), sought.inside_json("p.metadata")]
    conditions += [store.worth(one.id, value) for one, value in _amounts(work, sought.text)]
    newest = find_newest(work, PAYMENTS, conditions, MOST + 1)
    others = sorted([*of_wallets, *newest.records], key=lambda one: str(one.id), reverse=True)
    return Rows(_once(named, others), newest.is_all)


def _amounts(work: Work, text: str) -> Iterator[tuple[AssetRecord, int]]:
    """What the text is as an amount of each asset, in its smallest unit."""
    for one in list_assets(work):
        with suppress(Mistyped):
            yield one, typed_amount(Language("en", work.now), text, one.asset)


def _grants(work: Work, sought: Sought) -> Rows:
    named = [GRANTS.by_id(work, one) for name in sought.ids for one in store.grants_named(work, name)]
    of_wallets = store.of_wallets([one.id for one in sought.wallets])
    columns = sought.inside("g.id", "g.client_name", "c.identity")
    newest = find_newest(work, store.GRANTS_OF_CLIENTS, [columns, of_wallets], MOST + 1)
    return Rows(_once(named, newest.records), newest.is_all)


def _changes(work: Work, sought: Sought) -> Rows:
    named = [AUDIT.get(work, one) for one in sought.ids]
    conditions = [sought.inside("id", "actor", "action", "object"), sought.inside_json("details")]
    newest = find_newest(work, AUDIT, conditions, MOST + 1)
    return Rows(_once(filter(None, named), newest.records), newest.is_all)


def _few(records: Callable[[Work], Sequence[Any]], *fields: str) -> Callable[[Work, Sought], Rows]:
    """Of a kind with so few that all are looked at."""
    return lambda work, sought: Rows(sought.among(records(work), *fields))


def _once(*records: Iterable[Any]) -> Sequence[Any]:
    """Each record once, in the order of the first of each."""
    return [*{one.id: one for part in records for one in part}.values()]


class Searched(NamedTuple):
    """A kind of things: what they are called, the scope of keys that may see them, their shape, and how they are
    found."""

    label: str
    scope: str
    shape: Shape
    find: Callable[[Work, Sought], Rows]


# By the members of SearchResults.
SEARCHED: Final[Mapping[str, Searched]] = {
    "wallets": Searched("Wallets", "wallets:read", WALLET, _wallets),
    "payments": Searched("Payments", "payments:read", PAYMENT, _payments),
    "grants": Searched("Grants", "grants:read", GRANT, _grants),
    "peers": Searched("Peers", "peers:read", PEER, _few(list_peers, "name", "ilp_address", "url")),
    "webhooks": Searched("Webhooks", "webhooks:read", WEBHOOK, _few(list_webhooks, "url")),
    "api_keys": Searched("API keys", "keys:read", API_KEY, _few(list_api_keys, "name")),
    "changes": Searched("Changes", "audit:read", ENTRY, _changes),
}
