"""`payres grant`: what clients ask for, and the owner's answer when the operator gives it."""

import click
import msgspec

from payres.amounts import Asset, format_decimal
from payres.cli.groups import Group
from payres.cli.session import Resource, Session, labelled, with_session
from payres.clock import format_time
from payres.errors import InvalidRequest, NotFound, WrongState
from payres.grants import consent, tokens
from payres.store import clients, grants, wallets
from payres.store.grants import GrantRecord, InteractionRecord
from payres.store.work import Work
from payres.urls import canonical

STATES = ("pending", "expired", "approved", "lapsed", "issued", "denied", "revoked")


@click.group(cls=Group)
def grant() -> None:
    """REF is the id of a grant, or the URL that the client sends its user to (`interact.redirect`)."""


@grant.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only grants in this state.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, metavar="N", help="At most so many."
)
@with_session
def list_all(session: Session, state: str | None, limit: int) -> None:
    """List grants, newest first, with owners and amounts.

    \b
    Example: payres grant list --state pending
    """
    found = session.read(
        lambda work: [_describe(work, one) for one in grants.list_grants(work, state, limit, work.now)]
    )
    session.show_list("grants", found, _line, "There are no grants")


@grant.command()
@click.argument("ref")
@with_session
def show(session: Session, ref: str) -> None:
    """Show a grant: who asks, for what, and where it stands.

    \b
    Example: payres grant show http://127.0.0.1:8080/interact/0198.../7mC...
    """
    resource = session.read(lambda work: _describe(work, _find(work, ref)))
    session.show(resource, _text(resource))


@grant.command()
@click.argument("ref")
@with_session
def approve(session: Session, ref: str) -> None:
    """Consent to a grant in the owner's name.

    Prints the URL that the owner's browser would go to next: it tells the client.

    \b
    Example: payres grant approve 0198c0de-...
    """
    _decide(session, ref, approve=True)


@grant.command()
@click.argument("ref")
@with_session
def deny(session: Session, ref: str) -> None:
    """Refuse a grant in the owner's name.

    Prints the URL that the owner's browser would go to next: it tells the client.

    \b
    Example: payres grant deny 0198c0de-...
    """
    _decide(session, ref, approve=False)


@grant.command()
@click.argument("ref")
@with_session
def revoke(session: Session, ref: str) -> None:
    """End a grant and all its tokens at once. What was paid stays paid.

    \b
    Example: payres grant revoke 0198c0de-...
    """
    resource = session.write(lambda work: _describe(work, tokens.revoke_grant(work, _find(work, ref).id)))
    session.show(resource, _text(resource))


def _decide(session: Session, ref: str, approve: bool) -> None:
    def unit(work: Work) -> Resource:
        record = _find(work, ref)
        if grants.interaction_of_grant(work, record.id) is None:
            raise WrongState(f"The grant {record.id} needs no consent; there is nothing to decide")
        pending = consent.find_pending_of_grant(work, record.id)
        decision = consent.decide(work, pending, approve)
        return {"grant": _describe(work, _find(work, record.id)), "redirect": decision.redirect}

    resource = session.write(unit)
    word = "approved" if approve else "denied"
    redirect = resource["redirect"] or "(none: the client gave no finish URI and will ask for itself)"
    session.show(resource, f"{word}\nredirect  {redirect}")


def _find(work: Work, ref: str) -> GrantRecord:
    if "://" in ref:
        if not work.urls.is_ours(ref):
            raise InvalidRequest(
                f"{ref} is not under this server's base_url, which is {work.urls.base} by the settings here. Give"
                " the id of the grant instead, or the server's own settings, such as PAYRES_BASE_URL"
            )
        url = canonical(work.urls.own(ref))
        identifier, _, nonce = url.removeprefix(f"{work.urls.canonical_base}/interact/").partition("/")
        return consent.find_pending(work, identifier, nonce).grant
    record = grants.find_grant(work, ref)
    if record is None:
        raise NotFound(f"There is no grant {ref}; `payres grant list` shows all")
    return record


def _describe(work: Work, record: GrantRecord) -> Resource:
    owner = record.wallet_address_id
    interaction = grants.interaction_of_grant(work, record.id)
    return {
        "id": record.id,
        "state": _state(record, interaction, work.now),
        "client": clients.client_by_id(work, record.client_id).identity,
        "clientName": record.client_name,
        "walletAddress": None if owner is None else work.urls.wallet(wallets.wallet_by_id(work, owner).path),
        "access": msgspec.json.decode(record.access),
        "subject": msgspec.json.decode(record.subject) if record.subject else None,
        "interaction": None if interaction is None else _describe_interaction(work, interaction),
        "createdAt": format_time(record.created_at),
        "endedAt": None if record.ended_at is None else format_time(record.ended_at),
    }


def _state(record: GrantRecord, interaction: InteractionRecord | None, now: int) -> str:
    """The state as it is stored, unless the time for what comes next is over."""
    if interaction is None:
        return record.state
    if record.state == "pending" and now >= interaction.expires_at:
        return "expired"
    return "lapsed" if consent.has_lapsed(record, interaction, now) else record.state


def _describe_interaction(work: Work, found: InteractionRecord) -> Resource:
    return {
        "redirect": f"{work.urls.resource('interact', found.id)}/{found.nonce}",
        "finish": found.finish_uri,
        "expiresAt": format_time(found.expires_at),
        "decidedAt": None if found.decided_at is None else format_time(found.decided_at),
    }


def _line(grant: Resource) -> str:
    parties = f"{grant['client']} asks {grant['walletAddress']}" if grant["walletAddress"] else grant["client"]
    wanted = [_limits(item) or "any amount" for item in grant["access"] if _spends(item)] or ["to spend nothing"]
    until = f", until {grant['interaction']['expiresAt']}" if grant["state"] == "pending" else ""
    return f"{grant['id']}  {grant['state']:8}  {grant['createdAt']}  {parties}: {'; '.join(wanted)}{until}"


def _text(grant: Resource) -> str:
    name, interaction = grant["clientName"], grant["interaction"]
    rows = [
        ("grant", f"{grant['id']}, {grant['state']}"),
        ("client", f"{grant['client']} ({name})" if name else grant["client"]),
        ("owner", grant["walletAddress"] or "(no consent needed)"),
        *(("access", _access_line(item)) for item in grant["access"]),
        ("created", grant["createdAt"]),
    ]
    if interaction:
        rows.append(("consent", f"{interaction['redirect']} until {interaction['expiresAt']}"))
    return labelled(*rows)


def _access_line(item: Resource) -> str:
    parts = [f"{item['type']}: {', '.join(item['actions'])}"]
    if "identifier" in item:
        parts.append(f"for {item['identifier']}")
    return ", ".join(filter(None, [*parts, _limits(item)]))


def _spends(item: Resource) -> bool:
    return item["type"] == "outgoing-payment" and "create" in item["actions"]


def _limits(item: Resource) -> str:
    """How far the item lets the client spend, in words; empty when it has no limits."""
    limits = item.get("limits", {})
    parts = []
    for field, words in (("debitAmount", "sending at most"), ("receiveAmount", "delivering at most")):
        if field in limits:
            parts.append(f"{words} {_amount(limits[field])}")
    if "interval" in limits:
        parts.append(f"in each window of {limits['interval']}")
    if "receiver" in limits:
        parts.append(f"to {limits['receiver']}")
    return ", ".join(parts)


def _amount(amount: Resource) -> str:
    unit = Asset(amount["assetCode"], amount["assetScale"])
    return f"{format_decimal(int(amount['value']), unit)} {unit.code}"
