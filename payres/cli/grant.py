"""`payres grant`: what clients ask for, and the owner's answer when the operator gives it."""

from typing import get_args

import click
from msgspec import UNSET

from payres.admin import grants as endpoints
from payres.admin import representations
from payres.admin.requests import GrantQuery, NewDecision
from payres.admin.wire import Grant, GrantSpending
from payres.amounts import Asset, format_decimal
from payres.cli.groups import Group
from payres.cli.options import limit_option
from payres.cli.session import Resource, Session, labelled, with_session
from payres.errors import InvalidRequest
from payres.grants import consent
from payres.operator import grants
from payres.store.grants import GrantRecord, State
from payres.store.pages import PageQuery
from payres.store.work import Work
from payres.urls import canonical


@click.group(cls=Group)
def grant() -> None:
    """REF is the id of a grant, or the URL that the client sends its user to (`interact.redirect`)."""


@grant.command("list", example="payres grant list --state pending")
@click.option("--state", type=click.Choice(get_args(State)), help="Only grants in this state.")
@limit_option
@with_session
def list_all(session: Session, state: State | None, limit: int) -> None:
    """List grants, newest first, with owners and amounts."""
    page, query = PageQuery(limit), GrantQuery(state=state or UNSET)
    found = session.read(lambda work: endpoints.list_page(work, page, query)).result
    session.show_list("grants", found, _line, "There are no grants")


@grant.command(example="payres grant show http://127.0.0.1:8080/interact/0198.../7mC...")
@click.argument("ref")
@with_session
def show(session: Session, ref: str) -> None:
    """Show a grant: who asks, for what, and where it stands."""
    found = session.read(lambda work: representations.grant(work, _find(work, ref)))
    session.show(found, _text(found))


@grant.command(example="payres grant approve 0198c0de-...")
@click.argument("ref")
@with_session
def approve(session: Session, ref: str) -> None:
    """Consent to a grant in the owner's name.

    Prints the finish URL that the owner's browser would go to, which informs the client.
    """
    _decide(session, ref, approve=True)


@grant.command(example="payres grant deny 0198c0de-...")
@click.argument("ref")
@with_session
def deny(session: Session, ref: str) -> None:
    """Refuse a grant in the owner's name.

    Prints the finish URL that the owner's browser would go to, which informs the client.
    """
    _decide(session, ref, approve=False)


@grant.command(example="payres grant revoke 0198c0de-...")
@click.argument("ref")
@with_session
def revoke(session: Session, ref: str) -> None:
    """End a grant and all its tokens at once. What was paid stays paid."""
    revoked = session.write(lambda work: endpoints.revoke(work, _find(work, ref).id))
    session.show(revoked, _text(revoked))


def _decide(session: Session, ref: str, approve: bool) -> None:
    decision = session.write(lambda work: endpoints.decide(work, _find(work, ref).id, NewDecision(approve=approve)))
    word = "approved" if approve else "denied"
    redirect = decision.redirect or "(none: the client gave no finish URI and will ask for itself)"
    session.show(decision, f"{word}\nredirect  {redirect}")


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
    return grants.require_grant(work, ref)


def _line(grant: Grant) -> str:
    parties = f"{grant.client} asks {grant.wallet_address}" if grant.wallet_address else grant.client
    wanted = [_limits(item) or "any amount" for item in grant.access if _spends(item)] or ["to spend nothing"]
    until = f", until {grant.interaction.expires_at}" if grant.state == "pending" and grant.interaction else ""
    return f"{grant.id}  {grant.state:8}  {grant.created_at}  {parties}: {'; '.join(wanted)}{until}"


def _text(grant: Grant) -> str:
    name, interaction, spending = grant.client_name, grant.interaction, grant.spending
    rows = [
        ("grant", f"{grant.id}, {grant.state}"),
        ("client", f"{grant.client} ({name})" if name else grant.client),
        ("owner", grant.wallet_address or "(no consent needed)"),
        *(("access", _access_line(item)) for item in grant.access),
        ("created", grant.created_at),
    ]
    if spending:
        rows.append(("spent", _spent(spending)))
    if interaction:
        rows.append(("consent", f"{interaction.redirect} until {interaction.expires_at}"))
    return labelled(*rows)


def _spent(spending: GrantSpending) -> str:
    """What counts as spent now, and what is left where there is a limit."""
    text = f"{spending.debit} {spending.debit_asset_code}"
    if spending.debit_left is not None:
        text += f", {spending.debit_left} {spending.debit_asset_code} left"
    if spending.receive_left is not None:
        text += f"; delivered {spending.receive} {spending.receive_asset_code}, {spending.receive_left} left"
    return text


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
