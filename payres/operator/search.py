"""One search for everything that has a page, by what an operator knows of it: a name, an address, an amount, an id."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, NamedTuple

from payres.core.protocol.urls import pointed
from payres.core.protocol.visible import visible_text
from payres.core.protocol.wire import Resource
from payres.core.store.accounts import list_assets
from payres.core.store.grants import GRANTS
from payres.core.store.rows import PageQuery
from payres.core.store.server import AUDIT
from payres.core.store.wallets import WalletRecord, find_wallet
from payres.core.store.work import Work
from payres.html.language import Language, Mistyped, typed_amount
from payres.interledger.store.peers import list_peers
from payres.operator.api_keys import API_KEY, SCOPES, ApiKey, key_of_actor
from payres.operator.audit import ENTRY, AuditEntry
from payres.operator.declarations import CommandLine, Name, operation, said
from payres.operator.grants import GRANT, Grant
from payres.operator.payments import PAYMENT, Payment
from payres.operator.peers import PEER, Peer
from payres.operator.shapes import Shape, labelled
from payres.operator.store import search as store
from payres.operator.store.all_payments import PAYMENTS, page_of_payments
from payres.operator.store.operators import list_api_keys
from payres.operator.store.search import Condition, Hits, contains, find_newest
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


class Sought(NamedTuple):
    """What is searched for, in lower case; as SQL compares it; the ids in it; and the wallets that it names."""

    text: str
    forms: Sequence[str]
    ids: Sequence[str]
    wallets: Sequence[WalletRecord] = ()

    def among(self, records: Sequence[Any], *fields: str) -> Hits:
        """The records that have it in one of these fields, in any case of its letters, or that it names by an id."""
        fields = (*fields, "id") if _PART_OF_ID.fullmatch(self.text) else fields
        found = (any(self.text in str(getattr(one, name) or "").casefold() for name in fields) for one in records)
        return Hits([one for one, is_in in zip(records, found, strict=True) if is_in or str(one.id) in self.ids])

    def inside(self, key: str, *columns: str, in_json: str = "NULL") -> Sequence[Condition]:
        """The condition that one of these columns has it, or the key if it may be a part of an id; or a text in a
        column of JSON, however it is escaped there."""
        spelled = (json.dumps(form, ensure_ascii=is_ascii)[1:-1] for form in self.forms for is_ascii in (True, False))
        keys = [key] if _PART_OF_ID.fullmatch(self.text) else []
        return contains([*columns, *keys], self.forms), contains([in_json], {*spelled})


def _text(results: SearchResults) -> str:
    parts = []
    for name, (label, _, shape, _) in SEARCHED.items():
        rows = [[column.cell(one).printed for column in shape.on_pages] for one in getattr(results, name)]
        lines = [(first, ", ".join(filter(None, rest))) for first, *rest in rows]
        heading = f"{label}, and more:" if name in results.more else f"{label}:"
        parts += [f"{heading}\n{labelled(*lines)}"] if lines else []
    return "\n\n".join(parts) or "Nothing was found"


@operation(f"GET /search {READING}", command=CommandLine("search TEXT", "alice\n12.50", text=_text))
def search(
    work: Work, q: Annotated[Name, said("A part of a name or an address, an amount, an id or its end, or a note.")]
) -> SearchResults:
    """Find wallets, payments, grants, peers, webhooks, API keys and changes."""
    typed = " ".join(visible_text(q).split()).removeprefix("…")
    text = typed.casefold()
    # SQLite knows the case of ASCII letters only, so it is asked for the usual spellings of others.
    forms = [text] if text.isascii() else [*{text, typed, text.upper(), text.title()}]
    sought = Sought(text, forms, _UUID.findall(text))
    sought = sought._replace(wallets=_wallets(work, sought).records[:MOST])
    key = key_of_actor(work)
    scopes = SCOPES if key is None else key.scopes
    results: dict[str, Any] = {"more": [], "partly": []}
    for name, kind in SEARCHED.items():
        found = kind.find(work, sought) if text and kind.scope in scopes else Hits([])
        results[name] = [kind.shape.show(work, one) for one in found.records[:MOST]]
        results["more"] += [name] if len(found.records) > MOST else []
        results["partly"] += [] if found.is_all else [name]
    return SearchResults(**results)


def _wallets(work: Work, sought: Sought) -> Hits:
    path = (work.urls.wallet_path(str(pointed(sought.text))) or sought.text).removeprefix("admin/wallets/")
    of_path, newest = find_wallet(work, path), store.newest_wallets(work)
    found = [*([of_path] if of_path else []), *sought.among(newest, "path", "public_name").records]
    named_first = sorted(found, key=lambda one: (one.public_name or "").casefold() != sought.text and one != of_path)
    return Hits(_once(named_first), len(newest) < store.NEWEST)


def _payments(work: Work, sought: Sought) -> Hits:
    named = [PAYMENTS.by_id(work, one) for one in store.payments_named(work, sought.ids)]
    # An index has those of a wallet, so that they need not be among the newest.
    pages = (
        page_of_payments(work, PageQuery(MOST + 1), work.now, wallet_id=one.id, used=True) for one in sought.wallets
    )
    conditions = [*sought.inside("p.id", "p.receiver", in_json="p.metadata")]
    for asset in list_assets(work):
        with suppress(Mistyped):
            value = typed_amount(Language("en", work.now), sought.text, asset.asset)
            conditions.append(store.worth(asset.id, value))
    newest = find_newest(work, PAYMENTS, conditions, MOST + 1)
    others = [*newest.records, *(one for records, _ in pages for one in records)]
    return Hits(
        _once(named + sorted(others, key=lambda one: (one.id.endswith(sought.text), one.id), reverse=True)),
        newest.is_all,
    )


def _grants(work: Work, sought: Sought) -> Hits:
    named = [GRANTS.by_id(work, one) for one in store.grants_named(work, sought.ids)]
    of_wallets = store.of_wallets([one.id for one in sought.wallets])
    conditions = [*sought.inside("g.id", "g.client_name", "c.identity"), of_wallets]
    newest = find_newest(work, store.GRANTS_OF_CLIENTS, conditions, MOST + 1)
    return Hits(_once([*named, *newest.records]), newest.is_all)


def _peers(work: Work, sought: Sought) -> Hits:
    return sought.among(list_peers(work), "name", "ilp_address", "url", "note")


def _changes(work: Work, sought: Sought) -> Hits:
    named = filter(None, (AUDIT.get(work, one) for one in sought.ids))
    conditions = sought.inside("id", "actor", "action", "object", in_json="details")
    newest = find_newest(work, AUDIT, conditions, MOST + 1)
    return Hits(_once([*named, *newest.records]), newest.is_all)


def _once(records: Iterable[Any]) -> Sequence[Any]:
    return [*{one.id: one for one in records}.values()]


class Searched(NamedTuple):
    """A kind of things: what they are called, the scope of keys that may see them, their shape, and how they are
    found."""

    label: str
    scope: str
    shape: Shape
    find: Callable[[Work, Sought], Hits]


# By the members of SearchResults. Of peers, webhooks and keys there are so few that all are looked at.
SEARCHED: Final[Mapping[str, Searched]] = {
    "wallets": Searched("Wallets", "wallets:read", WALLET, _wallets),
    "payments": Searched("Payments", "payments:read", PAYMENT, _payments),
    "grants": Searched("Grants", "grants:read", GRANT, _grants),
    "peers": Searched("Peers", "peers:read", PEER, _peers),
    "webhooks": Searched("Webhooks", "webhooks:read", WEBHOOK, lambda work, s: s.among(list_webhooks(work), "url")),
    "api_keys": Searched("API keys", "keys:read", API_KEY, lambda work, s: s.among(list_api_keys(work), "name")),
    "changes": Searched("Changes", "audit:read", ENTRY, _changes),
}
