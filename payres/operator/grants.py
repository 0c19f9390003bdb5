"""The operator's rules of grants: deciding for the owner, revoking, and what each grant has spent and has left."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from markupsafe import Markup
from msgspec import UNSET, UnsetType

from payres.accounts.notices import notify_of_app
from payres.core.grants import consent, tokens
from payres.core.grants.access import granted_access
from payres.core.grants.consent import Pending
from payres.core.grants.spending_limits import Spending, current_window, spending_of, spent_in_window
from payres.core.protocol.amounts import Asset, format_decimal, parse_value
from payres.core.protocol.errors import InvalidRequest, WrongState, require
from payres.core.protocol.gnap import Limits, OutgoingPaymentAccess
from payres.core.protocol.urls import canonical
from payres.core.protocol.visible import visible_name
from payres.core.protocol.wire import Amount, Resource
from payres.core.store import audit, grants
from payres.core.store.clients import CLIENTS
from payres.core.store.grants import GRANTS, Decider, GrantRecord, GrantState, InteractionRecord
from payres.core.store.rows import PageBounds, PageQuery
from payres.core.store.wallets import WALLETS, require_wallet
from payres.core.store.work import Work
from payres.html.language import Language
from payres.html.sentences import limit_words, other_words
from payres.operator.declared.declarations import FOR_GOOD, CommandLine, Listing, OperationForm, operation
from payres.operator.declared.inputs import MAX_REASON, Name, check_reason, said
from payres.operator.declared.shapes import Cell, Column, Shape, Time, fact, path_of, represent
from payres.operator.store.grants import page_of_grants
from payres.operator.wallets import named_wallet

DecisionReason = Annotated[
    str,
    said("The owner and the audit log get this sentence.", label="How you know", min_length=1, max_length=MAX_REASON),
]
REFUSED: Final = frozenset({"denied", "expired", "lapsed"})  # states in which a grant has never permitted anything


def named_grant(work: Work, ref: str) -> str:
    """The id of a grant, which may be given as the URL of its consent page. Raises InvalidRequest, NotFound."""
    if "://" not in ref:
        return ref
    if not work.urls.is_ours(ref):
        raise InvalidRequest(
            f"{ref} is not under this server's base_url, which is {work.urls.base} by the settings here. Give the id of"
            " the grant instead, or the server's own settings, such as PAYRES_BASE_URL"
        )
    url = canonical(work.urls.own(ref))
    identifier, _, nonce = url.removeprefix(f"{work.urls.canonical_base}/interact/").partition("/")
    return consent.find_pending(work, identifier, nonce).grant.id


GrantName = Annotated[str, said(typed=named_grant)]


class Consent(Resource, frozen=True, kw_only=True):
    """`redirect` is where the client sends its user, `finish` where the user goes afterwards. `decidedBy` is null for
    decisions older than this member. `reason` is what an operator wrote for the owner."""

    redirect: str
    finish: str | None
    expires_at: Time
    decided_at: Time | None
    decided_by: Decider | None
    reason: str | None


class GrantSpending(Resource, frozen=True, kw_only=True):
    """What was spent in the current window, and what the limits leave; null where there is no limit."""

    debit: str
    debit_left: str | None
    debit_asset_code: str
    debit_asset_scale: int
    receive: str | None
    receive_left: str | None
    receive_asset_code: str | None
    receive_asset_scale: int | None


class Grant(Resource, frozen=True, kw_only=True):
    """`walletName` is the wallet's public name, or its path. `access` and `subject` are as granted. `spending` is null
    if the grant permits no payments, or none now."""

    id: str
    state: GrantState
    client: str
    client_name: str | None
    wallet_address: str | None
    wallet_name: str | None
    access: list[dict[str, Any]]
    subject: dict[str, Any] | None
    interaction: Consent | None
    spending: GrantSpending | None
    created_at: Time
    ended_at: Time | None


class GrantDecision(Resource, frozen=True, kw_only=True):
    """`redirect` is where the owner's browser would go next, which informs the client; null if the client gave no
    URL."""

    grant: Grant
    redirect: str | None


def grant(work: Work, record: GrantRecord) -> Grant:
    found = grants.INTERACTIONS.find(work, grant_id=record.id)
    owner = None if record.wallet_address_id is None else WALLETS.by_id(work, record.wallet_address_id)
    state = state_of(record, found, work.now)
    return represent(
        Grant,
        record,
        state=state,
        client=CLIENTS.by_id(work, record.client_id).identity,
        wallet_address=None if owner is None else work.urls.wallet(owner.path),
        wallet_name=None if owner is None else owner.public_name or owner.path,
        access=msgspec.json.decode(record.access),
        subject=msgspec.json.decode(record.subject) if record.subject else None,
        interaction=None if found is None else _consent(work, found),
        spending=None if state in REFUSED else _spending(work, record),
    )


def require_grant(work: Work, id: str) -> GrantRecord:
    """Raises NotFound."""
    return require(GRANTS.get(work, id), f"There is no grant {id}", "`payres grant list` shows all")


def state_of(record: GrantRecord, interaction: InteractionRecord | None, now: int) -> GrantState:
    """The stored state, or `expired` or `lapsed` if the time for the next step is over."""
    if interaction is None:
        return record.state
    if record.state == "pending" and not grants.is_undecided(record, interaction, now):
        return "expired"
    return "lapsed" if grants.has_lapsed(record.state, interaction.decided_at, now) else record.state


def _name(one: Grant) -> str:
    """What the client calls itself, or else its address, which is verified."""
    return visible_name(one.client_name, one.client) or one.client


def _client(one: Grant) -> str:
    """The client, with its self-chosen name in quotes."""
    name = _name(one)
    return name if name == one.client else f"{one.client} “{name}”"


def _money(value: str | None, code: str | None) -> str | None:
    return None if value is None else f"{code} {value}"


def _left(one: Grant) -> str | None:
    found = one.spending
    if found is None or one.state == "revoked":
        return None
    if found.debit_left is not None:
        return _money(found.debit_left, found.debit_asset_code)
    left = _money(found.receive_left, found.receive_asset_code)
    return "no limit" if left is None else f"{left} to receive"


def spending_under(one: Grant) -> Spending | None:
    return spending_of(msgspec.json.encode(one.access).decode())


def sees(one: Grant, language: Language) -> Sequence[Markup]:
    """Sentences on what else the grant permits."""
    words = other_words(language, msgspec.json.encode(one.access).decode(), None, one.wallet_address or "")
    found = [may.sentence for may in words]
    return [*found, Markup("It learns who the owner is.")] if one.subject or not found else found


def _may(one: Grant) -> str:
    """What the grant permits, as its owner reads it: `It may pay up to USD 50.00 a month, from 1 November 2026.`"""
    language, spending = Language("en", 0), spending_under(one)
    if spending is None:
        return " ".join(map(Markup.striptags, sees(one, language)))
    start = spending.interval.start if spending.interval else None
    parts = [f"It may pay {limit_words(language, spending).striptags()}"]
    parts += [] if start is None else [f"from {language.date(start)}"]
    parts += [f"only to {spending.receiver}"] if spending.receiver else []
    return f"{', '.join(parts)}."


def _access(one: Grant) -> str:
    def words(item: Mapping[str, Any]) -> str:
        actions = f"{item['type']}: {', '.join(item['actions'])}"
        return f"{actions}, for {item['identifier']}" if "identifier" in item else actions

    return "; ".join(map(words, one.access))


def _interval(one: Grant) -> str | None:
    return next((item["limits"]["interval"] for item in one.access if "interval" in item.get("limits", {})), None)


def _undecided(one: Grant) -> Consent | None:
    return one.interaction if one.state == "pending" else None


GRANT: Final = Shape(
    grant,
    Column("Asked for (UTC)", "created_at", "time"),
    Column("Grant", "id", "code", section="grants", listed="in files"),
    Column("App", lambda one: Cell(_name(one), "long", path_of("grants", one.id)), "long", "grants", "on pages"),
    Column("Client", _client, "long", listed="in files"),
    Column("Wallet", lambda one: one.wallet_name, "long", listed="on pages"),
    Column("Wallet", "wallet_address", "long", listed="in files"),
    Column("State", "state", "state"),
    Column("What it may do", _may, "long"),
    Column("Spent", lambda one: (found := one.spending) and _money(found.debit, found.debit_asset_code), "number"),
    Column("Left", _left, "number"),
    Column(
        *("Consent until (UTC)", lambda one: (found := _undecided(one)) and found.expires_at, "time"), listed="in files"
    ),
    fact("Access", _access, "long"),
    fact("Interval", _interval, "code"),
    fact("Consent page", lambda one: (found := _undecided(one)) and found.redirect, "code"),
    fact("Decided (UTC)", lambda one: one.interaction and one.interaction.decided_at, "time"),
    fact("Decided by", lambda one: one.interaction and one.interaction.decided_by),
    fact("Reason", lambda one: one.interaction and one.interaction.reason, "long"),
    fact("Ended (UTC)", "ended_at", "time"),
    fact("Afterwards the owner goes to", lambda one: one.interaction and one.interaction.finish, "code"),
    read=require_grant,
    page="/grants/{id}",
    moving={"spending"},
    name=_name,
)


@operation(
    "GET /grants grants:read",
    GRANT,
    command=CommandLine("grant list", "--state pending"),
    listing=Listing(
        *("grants", "There are no such grants", "Grants"),
        menu="Grants",
        none_yet="No grant yet",
        views={"All": "", "Waiting": "state=pending", "In use": "state=issued"},
    ),
)
def list_grants(
    work: Work,
    page: PageQuery,
    state: Annotated[GrantState | UnsetType, said("Only grants in this state.")] = UNSET,
    without_consent: Annotated[bool, said("Also grants that need no owner's consent.", option="--all")] = False,
    wallet: Annotated[Name | UnsetType, said("Only of this wallet.", metavar="PATH", typed=named_wallet)] = UNSET,
) -> tuple[Sequence[GrantRecord], PageBounds]:
    """List grants that owners decide on, newest first.

    Each with its owner and amounts. Others, for quotes and incoming payments, can spend nothing.
    """
    owner = require_wallet(work, wallet).id if wallet else None
    return page_of_grants(work, state or None, page, work.now, without_consent, owner)


@operation(
    "GET /grants/{id} grants:read",
    GRANT,
    command=CommandLine("grant show REF", "http://127.0.0.1:8080/interact/0198.../7mC..."),
)
def show_grant(work: Work, id: GrantName) -> GrantRecord:
    """Show a grant: its client, what it permits, and its state."""
    return require_grant(work, id)


@operation(
    "PUT /grants/{id}/decision grants:write",
    form=OperationForm(
        {"false": "Refuse", "true": "Approve"},
        GRANT,
        done="{name}: decided in {wallet_name}'s name",
        title="Decide in the owner's name",
        path="/grants/{id}/decision",
        needs=["reason"],
        will="It is the owner's money. Approve only what the owner told you to.",
        is_over=lambda grant: grant.state != "pending",
    ),
    audits="grant.approve grant.deny",
)
def decide(work: Work, id: str, approve: bool, reason: DecisionReason | None = None) -> GrantDecision:
    """Consent to a grant, or refuse it, in the owner's name.

    Raises WrongState if it is already decided, InvalidInteraction if it has expired.
    """
    check_reason(reason, "reason")
    record, interaction = require_grant(work, id), grants.INTERACTIONS.find(work, grant_id=id)
    if interaction is None:
        raise WrongState(f"The grant {record.id} needs no consent; there is nothing to decide")
    redirect = consent.decide(work, Pending(record, interaction), approve, "operator", reason)
    audit.record(work, "grant.approve" if approve else "grant.deny", record.id, reason=reason)
    if approve:
        notify_of_app(work, "grant_by_operator", record, reason)
    return GrantDecision(grant=grant(work, require_grant(work, id)), redirect=redirect)


def _decided(word: str, decision: GrantDecision) -> str:
    redirect = decision.redirect or "(none: the client gave no finish URI and will ask for itself)"
    return f"{word}\nredirect  {redirect}"


@operation(command=CommandLine("grant approve REF", text=partial(_decided, "approved")))
def approve(work: Work, id: GrantName, reason: DecisionReason | None = None) -> GrantDecision:
    """Consent to a grant in the owner's name.

    A browser that has the consent page open goes on to the finish URL by itself, which informs the client; the URL is
    printed too. Anyone with the page's URL can do so: approve what the owner wants, not what somebody else sends you.
    """
    return decide(work, id, True, reason)


@operation(command=CommandLine("grant deny REF", text=partial(_decided, "denied")))
def deny(work: Work, id: GrantName, reason: DecisionReason | None = None) -> GrantDecision:
    """Refuse a grant in the owner's name.

    A browser that has the consent page open goes on to the finish URL by itself, which informs the client; the URL is
    printed too.
    """
    return decide(work, id, False, reason)


@operation(
    "DELETE /grants/{id} grants:write",
    GRANT,
    command=CommandLine("grant revoke REF"),
    form=OperationForm(
        "Revoke the grant",
        GRANT,
        done="The grant of {name} is revoked",
        is_over=lambda grant: grant.ended_at,
        because=FOR_GOOD,
        ends=True,
    ),
    carries=("grant", "grants"),
)
def revoke(work: Work, id: GrantName) -> GrantRecord:
    """End a grant and all its tokens at once. What was paid stays paid."""
    require_grant(work, id)
    return tokens.revoke_grant(work, id)


def _consent(work: Work, found: InteractionRecord) -> Consent:
    page = f"{work.urls.resource('interact', found.id)}/{found.nonce}"
    return represent(Consent, found, redirect=page, finish=found.finish_uri)


def _spending(work: Work, record: GrantRecord) -> GrantSpending | None:
    """What a grant has spent in the current window; None if it permits no payments or has no current window."""
    items = [item for item in granted_access(record.access) if isinstance(item, OutgoingPaymentAccess)]
    item = next((item for item in items if "create" in item.actions), None)
    if item is None or record.wallet_address_id is None:
        return None
    limits = item.limits or Limits()
    window = current_window(limits, work.now)
    if window is None:
        return None
    most_debit, most_receive = limits.debit_amount or None, limits.receive_amount or None
    spent = spent_in_window(work, record.id, window, most_receive.asset if most_receive else None)
    debit, receive = (spent.debit, spent.receive) if spent else (0, 0)
    debited = WALLETS.by_id(work, record.wallet_address_id).asset
    received = most_receive.asset if most_receive else spent.receive_asset if spent else None
    return GrantSpending(
        debit=format_decimal(debit, debited),
        debit_left=_rest(most_debit, debit, debited),
        debit_asset_code=debited.code,
        debit_asset_scale=debited.scale,
        receive=None if received is None else format_decimal(receive, received),
        receive_left=_rest(most_receive, receive, received),
        receive_asset_code=received.code if received else None,
        receive_asset_scale=received.scale if received else None,
    )


def _rest(most: Amount | None, spent: int, asset: Asset | None) -> str | None:
    return None if most is None or asset is None else format_decimal(max(parse_value(most.value) - spent, 0), asset)
