"""The audit log, as operators read it. Changes are written by `payres.core.store.audit`."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Final

from msgspec import UNSET, UnsetType

from payres.core.protocol.wire import Resource, encode
from payres.core.store.audit import AuditRecord
from payres.core.store.rows import PageBounds, PageQuery
from payres.core.store.work import Work
from payres.operator.declared.declarations import CommandLine, Listing, declared, operation
from payres.operator.declared.inputs import Name, TimeText, require_time, said
from payres.operator.declared.shapes import Cell, Column, Shape, Time, path_of, represent
from payres.operator.store import audit as store

# The section with the page of an action's object, by the noun of the action.
OWN: Final = ("wallet", "peer", "grant", "payment", "webhook")
SECTIONS: Final = {one: f"{one}s" for one in OWN} | {"key": "wallets", "api_key": "api-keys"}
# How verbs and nouns of actions are told; other verbs are regular.
DONE: Final = (
    {"set": "set the", "send": "sent the", "deny": "denied the", "sign_out": "ended the sessions of the"}
    | {"deposit": "put {amount} into the", "withdraw": "took {amount} out of the"}
    | {"refund": "sent back {amount} of the"}
    | {"peer.deposit": "recorded {amount} paid by the", "peer.withdraw": "recorded {amount} paid to the"}
    | dict.fromkeys(("link", "reset_link"), "made a password link for the")
    | {"set_password": "set the password of the", "lock_out": "locked out the", "backup": "made a copy of the"}
    | {"codes_on": "turned on codes for the", "codes_off": "turned off codes for the"}
    | {"recovery_codes": "made recovery codes for the", "passkey_added": "added a passkey to the"}
    | {"passkey_removed": "removed a passkey of the", "rename_passkey": "renamed a passkey of the"}
    | {"passkey_suspect": "may have a copy of a passkey of the", "factors_removed": "removed the second step of the"}
    | {"remove_factors": "asked to remove the second step of the", "keep_factors": "kept the second step of the"}
    | {"not_me": "followed the link in a mail about the"}
    | {"ask_above": "set what asks again for the", "change_notices": "changed the notices of the"}
    | {"role": "set the role of the", "base_url": "set the base URL of the", "superseded": "superseded the"}
)
NOUNS: Final = {"admin": "operator", "order": "standing order", "api_key": "API key", "key": "key of the wallet"}


class AuditEntry(Resource, frozen=True, kw_only=True):
    id: str
    created_at: Time
    actor: str
    action: str
    object: str
    details: Mapping[str, str | int | float | bool | list[str]]


def entry(work: Work, record: AuditRecord) -> AuditEntry:
    return represent(AuditEntry, record)


def _actor(entry: AuditEntry) -> Cell:
    kind, _, key = entry.actor.partition(":")
    return Cell(entry.actor, "long", path_of("api-keys", key) if kind == "api" else None)


def _object(entry: AuditEntry) -> Cell:
    """The object, with a link to its page unless it was removed, or the action names something else."""
    noun, _, verb = entry.action.partition(".")
    section = None if verb in {"remove", "replay"} else SECTIONS.get(noun)
    return Cell(entry.object, "long", path_of(section, entry.object) if section else None)


def _details(entry: AuditEntry) -> str:
    said = entry.details.items()
    return ", ".join(f"{name} {value if isinstance(value, str) else encode(value).decode()}" for name, value in said)


@cache
def _told() -> Mapping[str, str]:
    """What declarations say of their actions."""
    return {one.actions[0]: one.told for one in declared() if one.told}


def told(entry: AuditEntry) -> Sequence[Cell]:
    """What was done, as a sentence in parts: who, did what, to what, by what name."""
    kind, _, key = entry.actor.partition(":")
    who = {"page": key, "shell": f"{key} at the command", "owner": f"the owner of {key}", "api": "a program"}
    noun, _, verb = entry.action.partition(".")
    first, *rest = verb.split("_")
    usual = " ".join([f"{first}{'' if first.endswith('e') else 'e'}d", *([*rest, "of"] if rest else ()), "the"])
    amount, _, code = str(entry.details.get("amount", "")).partition(" ")
    done = DONE.get(entry.action) or _told().get(entry.action) or DONE.get(verb, usual)
    done = done.format(amount=f"{code} {Cell(amount, 'number').shown}")
    reference = str(entry.details.get("reference", ""))
    named = f", “{reference}”" if reference and not reference.startswith("page ") else ""
    named = f" once more{named}" if "again" in entry.details else named
    return [Cell(who.get(kind, entry.actor)), Cell(f" {done} {NOUNS.get(noun, noun)} "), _object(entry), Cell(named)]


ENTRY: Final = Shape(
    entry,
    Column("Time (UTC)", "created_at", "time"),
    Column("Who", _actor),
    Column("What", lambda one: "".join(part.brief for part in told(one)), listed="on pages", titles=True),
    Column("Did what", "action"),
    Column("To what", _object),
    Column("Details", _details, "long"),
)


@operation(
    "GET /audit-log audit:read",
    ENTRY,
    command=CommandLine("audit list", "--limit 10"),
    listing=Listing(
        *("entries", "Nothing has been changed yet", "Audit log"),
        menu="Server",
        about="What operators changed, with the command, the API or these pages.",
    ),
)
def list_entries(
    work: Work,
    page: PageQuery,
    actor: Annotated[Name | UnsetType, said("Only by actors with this in the name.")] = UNSET,
    action: Annotated[Name | UnsetType, said("Only with this in the action, such as wallet.")] = UNSET,
    object_: Annotated[Name | UnsetType, said("Only with this in the object.")] = UNSET,
    from_: Annotated[TimeText | UnsetType, said("On this day (UTC), or at this time, or later.")] = UNSET,
    to: Annotated[TimeText | UnsetType, said("Before then.")] = UNSET,
) -> tuple[Sequence[AuditRecord], PageBounds]:
    """List what was changed and by whom, newest first."""
    parts = {"actor": actor or None, "action": action or None, "object": object_ or None}
    since, until = require_time(from_, "from") if from_ else None, require_time(to, "to") if to else None
    return store.page_of_audit(work, page, parts, since, until)


def who_set(work: Work, about: str, member: str) -> AuditEntry | None:
    """The newest entry about this object that has the member in its details, among the last thousand of all."""
    found = store.newest_with(work, about, member)
    return entry(work, found) if found else None


def who_moved(work: Work, movement: str, created_at: str) -> str:
    """Who recorded a movement, as the next entry says; "" if that is of another time."""
    found = store.next_after(work, movement)
    one = entry(work, found) if found else None
    return told(one)[0].text if one and one.created_at == created_at else ""
