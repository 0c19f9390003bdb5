"""Consent: a wallet owner's decision on a grant, and how it reaches the client (RFC 9635 section 4).

The owner, signed in, decides on the request exactly as shown; the operator may decide instead. A decision is final.
"""

import hmac
from urllib.parse import quote, urlencode

import msgspec

from payres.core.grants.tokens import emit_grant_event
from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import InteractionUnknown, InvalidInteraction, WrongState
from payres.core.protocol.gnap import interaction_hash
from payres.core.protocol.limits import APPROVAL_SECONDS
from payres.core.protocol.urls import Urls
from payres.core.store import grants, retention
from payres.core.store.grants import GRANTS, INTERACTIONS, Decider, GrantRecord, InteractionRecord
from payres.core.store.work import Transaction, Work


class Pending(msgspec.Struct, frozen=True):
    """A grant and its interaction."""

    grant: GrantRecord
    interaction: InteractionRecord


def find_pending(tx: Transaction, interaction_id: str, nonce: str) -> Pending:
    """The interaction behind an `interact.redirect` URL, decided or not. Raises InteractionUnknown."""
    interaction = INTERACTIONS.get(tx, interaction_id)
    if interaction is None or not hmac.compare_digest(interaction.nonce.encode(), nonce.encode()):
        raise InteractionUnknown("There is no such request for consent; the app can ask again")
    return Pending(GRANTS.by_id(tx, interaction.grant_id), interaction)


def decide(work: Work, pending: Pending, approve: bool, decider: Decider) -> str | None:
    """Approves or denies the grant, which was read in this unit. Returns the URL to send the user to, or None without a
    finish URI.

    Raises WrongState after a decision, InvalidInteraction if the request has expired.
    """
    check_undecided(pending, work.now)
    grant, interaction = pending.grant, pending.interaction
    reference = work.new_secret() if approve else None
    after, ended_at = ("approved", None) if approve else ("denied", work.now)
    changed = grants.change_state(work, grant.id, "pending", after, ended_at)
    assert changed
    GRANTS.update(work, grant.id, purge_at=work.now + retention.DECIDED_GRANT)
    INTERACTIONS.update(work, interaction.id, reference=reference, decided_at=work.now, decided_by=decider)
    if not approve:
        emit_grant_event(work, "grant.denied", grant)
    return _redirect(work.urls, interaction, reference)


def has_lapsed(state: str, decided_at: int | None, now: int) -> bool:
    """Whether the client has not continued an approved grant in time."""
    return state == "approved" and decided_at is not None and now >= decided_at + APPROVAL_SECONDS * SECOND


def finish_link(urls: Urls, pending: Pending, now: int) -> str | None:
    """The redirect of an earlier decision.

    None without a finish URI, and for an approval that the client used or let lapse.
    """
    reference = pending.interaction.reference
    if pending.grant.state == "approved":
        is_usable = reference is not None and not has_lapsed(pending.grant.state, pending.interaction.decided_at, now)
    else:
        is_usable = pending.grant.state == "denied"
    return _redirect(urls, pending.interaction, reference) if is_usable else None


def finish_url(uri: str, parameters: dict[str, str]) -> str:
    """The client's finish URI with parameters added; the rest stays unchanged, byte for byte."""
    before, fragment_mark, fragment = uri.partition("#")
    added = urlencode(parameters, quote_via=quote, safe="")
    _, question_mark, query = before.partition("?")
    joint = "&" if query and not query.endswith("&") else "" if question_mark else "?"
    return f"{before}{joint}{added}{fragment_mark}{fragment}"


def check_undecided(pending: Pending, now: int) -> None:
    """Raises WrongState after a decision or cancellation, InvalidInteraction if the request has expired."""
    if pending.grant.state == "revoked":
        raise WrongState("This request was cancelled")
    if pending.grant.state != "pending":
        raise WrongState("This request has been decided already")
    if now >= pending.interaction.expires_at:
        raise InvalidInteraction("This request has expired; the app can ask again")


def _redirect(urls: Urls, interaction: InteractionRecord, reference: str | None) -> str | None:
    """The redirect for a decision; a denial if there is no reference."""
    if interaction.finish_uri is None:
        return None
    if reference is None:
        return finish_url(interaction.finish_uri, {"result": "grant_rejected"})
    assert interaction.client_nonce is not None
    digest = interaction_hash(interaction.client_nonce, interaction.server_nonce, reference, urls.auth_server)
    return finish_url(interaction.finish_uri, {"hash": digest, "interact_ref": reference})
