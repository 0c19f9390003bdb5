"""`payres grant`: what clients ask for, and the owner's answer when the operator gives it."""

from collections.abc import Sequence
from functools import partial
from typing import get_args

import click
from msgspec import UNSET

from payres.admin import grants as endpoints
from payres.admin.requests import GrantQuery, NewDecision
from payres.admin.wire import Grant, GrantDecision, GrantSpending
from payres.amounts import Asset, format_decimal
from payres.cli.commands import Group
from payres.cli.options import limit_option
from payres.cli.session import JsonObject, labelled, lists, reads, writes
from payres.errors import InvalidRequest
from payres.grants import consent
from payres.store.grants import State
from payres.store.rows import PageQuery
from payres.store.work import Work
from payres.urls import canonical


@click.group(cls=Group)
def grant() -> None:
    """REF is the id of a grant, or the URL that the client sends its user to (`interact.redirect`)."""


def _find(work: Work, ref: str) -> str:
    """The id of a grant, which may be given as its URL."""
    if "://" in ref:
        if not work.urls.is_ours(ref):
            raise InvalidRequest(
                f"{ref} is not under this server's base_url, which is {work.urls.base} by the settings here. Give"
                " the id of the grant instead, or the server's own settings, such as PAYRES_BASE_URL"
            )
        url = canonical(work.urls.own(ref))
        identifier, _, nonce = url.removeprefix(f"{work.urls.canonical_base}/interact/").partition("/")
        return consent.find_pending(work, identifier, nonce).grant.id
    return ref


def _decided(word: str, decision: GrantDecision) -> str:
    redirect = decision.redirect or "(none: the client gave no finish URI and will ask for itself)"
    return f"{word}\nredirect  {redirect}"


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


def _access_line(item: JsonObject) -> str:
    parts = [f"{item['type']}: {', '.join(item['actions'])}"]
    if "identifier" in item:
        parts.append(f"for {item['identifier']}")
    return ", ".join(filter(None, [*parts, _limits(item)]))


def _spends(item: JsonObject) -> bool:
    return item["type"] == "outgoing-payment" and "create" in item["actions"]


def _limits(item: JsonObject) -> str:
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


def _amount(amount: JsonObject) -> str:
    asset = Asset(amount["assetCode"], amount["assetScale"])
    return f"{format_decimal(int(amount['value']), asset)} {asset.code}"


@grant.command("list", example="payres grant list --state pending")
@click.option("--state", type=click.Choice(get_args(State)), help="Only grants in this state.")
@limit_option
@lists("grants", _line, "There are no grants")
def list_all(work: Work, state: State | None, limit: int) -> Sequence[Grant]:
    """List grants, newest first, with owners and amounts."""
    return endpoints.list_page(work, PageQuery(limit), GrantQuery(state=state or UNSET)).result


@grant.command(example="payres grant show http://127.0.0.1:8080/interact/0198.../7mC...")
@click.argument("ref")
@reads(_text)
def show(work: Work, ref: str) -> Grant:
    """Show a grant: who asks, for what, and where it stands."""
    return endpoints.show(work, _find(work, ref))


@grant.command(example="payres grant approve 0198c0de-...")
@click.argument("ref")
@writes(partial(_decided, "approved"))
def approve(work: Work, ref: str) -> GrantDecision:
    """Consent to a grant in the owner's name.

    Prints the finish URL that the owner's browser would go to, which informs the client.
    """
    return endpoints.decide(work, _find(work, ref), NewDecision(approve=True))


@grant.command(example="payres grant deny 0198c0de-...")
@click.argument("ref")
@writes(partial(_decided, "denied"))
def deny(work: Work, ref: str) -> GrantDecision:
    """Refuse a grant in the owner's name.

    Prints the finish URL that the owner's browser would go to, which informs the client.
    """
    return endpoints.decide(work, _find(work, ref), NewDecision(approve=False))


@grant.command(example="payres grant revoke 0198c0de-...")
@click.argument("ref")
@writes(_text)
def revoke(work: Work, ref: str) -> Grant:
    """End a grant and all its tokens at once. What was paid stays paid."""
    return endpoints.revoke(work, _find(work, ref))
