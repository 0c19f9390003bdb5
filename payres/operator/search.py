"""One search for everything that has a page, by what an operator knows of it: a name, an address, an amount, an id."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, NamedTuple, Protocol, TypeVar

from payres.core.protocol.urls import pointed
from payres.core.protocol.visible import visible_text
from payres.core.protocol.wire import Resource
from payres.core.store.accounts import list_assets
from payres.core.store.audit import AUDIT, AuditRecord
from payres.core.store.grants import GRANTS, GrantRecord
from payres.core.store.rows import PageQuery
from payres.core.store.wallets import WalletRecord, find_wallet
from payres.core.store.work import Work
from payres.html.language import Language
from payres.html.typed_amounts import Mistyped, typed_amount
from payres.interledger.store.peers import list_peers
from payres.operator.api_keys import API_KEY, ApiKey, key_of_actor
from payres.operator.audit import ENTRY, AuditEntry
from payres.operator.declared.declarations import CommandLine, operation
from payres.operator.declared.inputs import Name, said
from payres.operator.declared.shapes import Shape, labelled
from payres.operator.grants import GRANT, Grant
from payres.operator.payments import PAYMENT, Payment
from payres.operator.peers import PEER, Peer
from payres.operator.store import search as store
from payres.operator.store.all_payments import PAYMENTS, PaymentRecord, page_of_payments
from payres.operator.store.api_keys import API_KEYS
from payres.operator.store.search import Condition, contains, contains_in_json, find_newest
from payres.operator.wallets import WALLET, Wallet
from payres.operator.webhooks import WEBHOOK, Webhook
from payres.webhooks.store.webhooks import list_webhooks

MOST: Final = 20  # rows of a kind
# A program finds what its key may read.
READING: Final = "wallets:read|payments:read|grants:read|peers:read|webhooks:read|keys:read|audit:read"
_UUID: Final = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PART_OF_ID: Final = re.compile("[0-9a-f-]{6,35}")


class Record(Protocol):
    @property
    def id(self) -> int | str: ...


R = TypeVar("R", bound=Record)


class SearchResults(Resource, frozen=True, kw_only=True):
    """At most twenty of each kind, newest first, before them what has this very id, path or name. `more` names the
    kinds of which there are more. Texts are looked for in the newest 10,000 of a kind."""

    wallets: list[Wallet]
    payments: list[Payment]
    grants: list[Grant]
    peers: list[Peer]
    webhooks: list[Webhook]
    api_keys: list[ApiKey]
    changes: list[AuditEntry]
    more: list[str]


class Sought(NamedTuple):
    """What is searched for, in lower case; as SQL compares it; the ids in it; and the wallets that it names."""

    text: str
    forms: Sequence[str]
    ids: Sequence[str]
    wallets: Sequence[WalletRecord] = ()

    def among(self, records: Sequence[R], *fields: str) -> Sequence[R]:
        """The records that have it in one of these fields, in any case of its letters, or that it names by an id."""
        fields = (*fields, "id") if _PART_OF_ID.fullmatch(self.text) else fields
        texts = ([str(getattr(one, name) or "").casefold() for name in fields] for one in records)
        found = zip(records, texts, strict=True)
        return [one for one, said in found if any(self.text in text for text in said) or str(one.id) in self.ids]

    def inside(self, key: str, *columns: str, in_json: str = "NULL") -> Sequence[Condition]:
        """The conditions that one of these columns has it, or the key if it may be a part of an id; or a text in a
        column of JSON."""
        keys = [key] if _PART_OF_ID.fullmatch(self.text) else []
        return contains([*columns, *keys], self.forms), contains_in_json(in_json, self.forms)


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
    sought = sought._replace(wallets=_wallets(work, sought)[:MOST])
    key = key_of_actor(work)
    results: dict[str, Any] = {"more": []}
    for name, (_, scope, shape, find) in SEARCHED.items():
        found = find(work, sought) if text and (key is None or scope in key.scopes) else []
        results[name] = [shape.show(work, one) for one in found[:MOST]]
        results["more"] += [name] if len(found) > MOST else []
    return SearchResults(**results)


def _wallets(work: Work, sought: Sought) -> Sequence[WalletRecord]:
    path = (work.urls.wallet_path(str(pointed(sought.text))) or sought.text).removeprefix("admin/wallets/")
    of_path = find_wallet(work, path)
    found = [*([of_path] if of_path else []), *sought.among(store.newest_wallets(work), "path", "public_name")]
    found.sort(key=lambda one: (one.public_name or "").casefold() != sought.text and one != of_path)
    return _once(found)


def _payments(work: Work, sought: Sought) -> Sequence[PaymentRecord]:
    named = [PAYMENTS.by_id(work, one) for one in store.find_named(work, store.OF_PAYMENTS, sought.ids)]
    conditions = [*sought.inside("p.id", "p.receiver", in_json="p.metadata")]
    for asset in list_assets(work):
        with suppress(Mistyped):
            value = typed_amount(Language("en", work.now), sought.text, asset.asset)
            conditions.append(store.worth(asset.id, value))
    found = [*find_newest(work, PAYMENTS, conditions, MOST + 1)]
    for wallet in sought.wallets:  # by its index, so that they need not be among the newest
        found += page_of_payments(work, PageQuery(MOST + 1), work.now, wallet_id=wallet.id, used=True)[0]
    found.sort(key=lambda one: (one.id.endswith(sought.text), one.id), reverse=True)
    return _once(named + found)


def _grants(work: Work, sought: Sought) -> Sequence[GrantRecord]:
    named = [GRANTS.by_id(work, one) for one in store.find_named(work, store.OF_GRANTS, sought.ids)]
    of_wallets = store.of_wallets([one.id for one in sought.wallets])
    conditions = [*sought.inside("g.id", "g.client_name", "c.identity"), of_wallets]
    return _once([*named, *find_newest(work, store.GRANTS_OF_CLIENTS, conditions, MOST + 1)])


def _changes(work: Work, sought: Sought) -> Sequence[AuditRecord]:
    named = filter(None, (AUDIT.get(work, one) for one in sought.ids))
    conditions = sought.inside("id", "actor", "action", "object", in_json="details")
    return _once([*named, *find_newest(work, AUDIT, conditions, MOST + 1)])


def _once(records: Iterable[R]) -> Sequence[R]:
    return [*{one.id: one for one in records}.values()]


def _few(records: Callable[[Work], Sequence[R]], *fields: str) -> Callable[[Work, Sought], Sequence[R]]:
    """Of a kind with so few that all are looked at."""
    return lambda work, sought: sought.among(records(work), *fields)


# By the members of SearchResults: what they are called, the scope of keys that may see them, their shape, and how they
# are found.
SEARCHED: Final[Mapping[str, tuple[str, str, Shape, Callable[[Work, Sought], Sequence[Record]]]]] = {
    "wallets": ("Wallets", "wallets:read", WALLET, _wallets),
    "payments": ("Payments", "payments:read", PAYMENT, _payments),
    "grants": ("Grants", "grants:read", GRANT, _grants),
    "peers": ("Peers", "peers:read", PEER, _few(list_peers, "name", "ilp_address", "url", "note")),
    "webhooks": ("Webhooks", "webhooks:read", WEBHOOK, _few(list_webhooks, "url", "name")),
    "api_keys": ("API keys", "keys:read", API_KEY, _few(lambda work: API_KEYS.list(work)[::-1], "name")),
    "changes": ("Changes", "audit:read", ENTRY, _changes),
}
