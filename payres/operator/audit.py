"""The audit log, as operators read it. Changes are written by `payres.core.store.server`."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from msgspec import UNSET, UnsetType

from payres.core.protocol.wire import Resource, encode
from payres.core.store.rows import PageBounds, PageQuery, select_page
from payres.core.store.server import AUDIT, AuditRecord
from payres.core.store.work import Work
from payres.operator.declarations import FROM, Name, Query, TimeText, command, endpoint, lists, require_time, said
from payres.operator.shapes import Cell, Column, Shape, path_of, represent

# The section with the page of an action's object, by the noun of the action.
OWN: Final = ("wallet", "peer", "grant", "payment", "webhook")
SECTIONS: Final = {one: f"{one}s" for one in OWN} | {"key": "wallets", "api_key": "api-keys"}


class AuditEntry(Resource, frozen=True, kw_only=True):
    id: str
    created_at: str
    actor: str
    action: str
    object: str
    details: dict[str, Any]


def entry(work: Work, record: AuditRecord) -> AuditEntry:
    return represent(AuditEntry, record)


class AuditQuery(Query, frozen=True, kw_only=True):
    """`actor`, `action` and `object` are substrings of those members of an entry."""

    actor: Annotated[Name | UnsetType, said("Only by actors with this in the name.")] = UNSET
    action: Annotated[Name | UnsetType, said("Only with this in the action, such as wallet.")] = UNSET
    object: Annotated[Name | UnsetType, said("Only with this in the object.")] = UNSET
    from_: Annotated[TimeText | UnsetType, said("On this day (UTC), or at this time, or later.")] = FROM
    to: Annotated[TimeText | UnsetType, said("Before then.")] = UNSET


def _actor(entry: AuditEntry) -> Cell:
    kind, _, key = entry.actor.partition(":")
    return Cell(entry.actor, "long", path_of("api-keys", key) if kind == "api" else None)


def _object(entry: AuditEntry) -> Cell:
    """The object, with a link to its page unless it was removed, or the action names something else."""
    noun, _, verb = entry.action.partition(".")
    section = None if verb in {"remove", "replay"} else SECTIONS.get(noun)
    return Cell(entry.object, "long", path_of(section, entry.object) if section else None)


def _details(entry: AuditEntry) -> str:
    """The details of an entry in one line."""
    said = (
        (name, value if isinstance(value, str) else encode(value).decode()) for name, value in entry.details.items()
    )
    return ", ".join(f"{name} {value}" for name, value in said)


# What was done to a thing, where it does not follow from the action's name.
DONE: Final = {
    "wallet.deposit": "put {amount} into the wallet",
    "wallet.withdraw": "took {amount} out of the wallet",
    "wallet.set_password": "set a password for the wallet",
    "wallet.reset_link": "made a password link for the wallet",
    "peer.deposit": "recorded {amount} paid by the peer",
    "peer.withdraw": "recorded {amount} paid to the peer",
    "liquidity.deposit": "added {amount} to the liquidity in",
    "liquidity.withdraw": "took {amount} out of the liquidity in",
    "fees.withdraw": "took {amount} out of the fees in",
    "payment.refund": "sent {amount} back from the payment",
    "webhook.replay": "sent events again:",
    "database.backup": "made the backup",
    "database.restore": "restored the backup",
    "admin.link": "made a password link for the operator",
    "admin.set_password": "set the password of the operator",
    "admin.lock_out": "locked out the operator",
}
PAST: Final = {"set": "set", "send": "sent", "deny": "denied"}
NOUNS: Final = {"admin": "operator", "api_key": "API key", "key": "key of the wallet"}


def told(entry: AuditEntry) -> Sequence[Cell]:
    """What was done, as a sentence in parts: who, did what, to what, by what name."""
    kind, _, key = entry.actor.partition(":")
    who = {"page": key, "shell": f"{key} at the command", "owner": f"the owner of {key}", "api": "a program"}
    noun, _, verb = entry.action.partition(".")
    first, _, rest = verb.partition("_")
    past = PAST.get(first, f"{first}{'' if first.endswith('e') else 'e'}d")
    usual = " ".join([past, *(f"{rest} of".split("_") if rest else ()), "the", NOUNS.get(noun, noun)])
    amount, _, code = str(entry.details.get("amount", "")).partition(" ")
    done = DONE.get(entry.action, usual).format(amount=f"{code} {amount}".strip())
    actor, reference = _actor(entry), entry.details.get("reference")
    named = f", “{reference}”" if reference and not str(reference).startswith("page ") else ""
    return [Cell(who.get(kind, entry.actor), link=actor.link), Cell(f" {done} "), _object(entry), Cell(named)]


ENTRY: Final = Shape(
    entry,
    Column("Time (UTC)", "created_at", "time"),
    Column("Who", _actor),
    Column("What", lambda one: "".join(part.text for part in told(one)), listed="on pages", titles=True),
    Column("Did what", "action"),
    Column("To what", _object),
    Column("Details", _details, "long"),
)


@endpoint("GET /audit-log", "audit:read", ENTRY, noun="audit")
@command("audit list", "--limit 10")
@lists(
    "entries",
    "Nothing has been changed yet",
    "Audit log",
    about="What operators changed, with the command, the API or these pages.",
)
def list_entries(work: Work, page: PageQuery, query: AuditQuery) -> tuple[Sequence[AuditRecord], PageBounds]:
    """List what was changed and by whom, newest first."""
    conditions: dict[str, Any] = {
        **{f"instr(lower({name}), lower(?)) > 0": getattr(query, name) for name in ("actor", "action", "object")},
        "created_at >= ?": require_time(query.from_, "from") if query.from_ else None,
        "created_at < ?": require_time(query.to, "to") if query.to else None,
    }
    return select_page(work, AUDIT, page, {sql: value for sql, value in conditions.items() if value})
