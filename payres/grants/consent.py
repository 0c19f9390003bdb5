"""Consent: a wallet owner's decision on a grant, made once (RFC 9635 section 4)."""

import hmac

import msgspec

from payres.errors import InteractionUnknown, InvalidInteraction, WrongState
from payres.grants.finish import finish_url, interaction_hash
from payres.grants.forgetting import DENIED_FOR
from payres.identifiers import Identifiers
from payres.store import grants
from payres.store.database import Transaction
from payres.store.grants import GrantRecord, InteractionRecord
from payres.urls import Urls


class Pending(msgspec.Struct, frozen=True):
    """A grant and its interaction, as found."""

    grant: GrantRecord
    interaction: InteractionRecord


class Decision(msgspec.Struct, frozen=True):
    """What was decided. redirect is where to send the user, None when the client gave no finish URI."""

    grant_id: str
    approved: bool
    redirect: str | None


def find_pending(tx: Transaction, interaction_id: str, nonce: str) -> Pending:
    """The interaction behind an `interact.redirect` URL, decided or not. Refuses with 404 `unknown_interaction`."""
    interaction = grants.find_interaction(tx, interaction_id)
    if interaction is None or not hmac.compare_digest(interaction.nonce.encode(), nonce.encode()):
        raise _unknown()
    return _with_grant(tx, interaction)


def find_pending_of_grant(tx: Transaction, grant_id: str) -> Pending:
    """The interaction of a grant. Refuses with 404 `unknown_interaction` when it has none."""
    interaction = grants.interaction_of_grant(tx, grant_id)
    if interaction is None:
        raise _unknown()
    return _with_grant(tx, interaction)


def check_undecided(pending: Pending, now: int) -> None:
    """Refuses with 409 `wrong_state` what was decided or cancelled, with 400 `invalid_interaction` what has expired."""
    if pending.grant.state == "revoked":
        raise WrongState("This request was cancelled")
    if pending.grant.state != "pending":
        raise WrongState("This request has been decided already")
    if now >= pending.interaction.expires_at:
        raise InvalidInteraction("This request has expired; the app can ask again")


def decide(
    tx: Transaction, urls: Urls, pending: Pending, approve: bool, identifiers: Identifiers, now: int
) -> Decision:
    """Approves or denies the grant. Refuses a second decision with 409, a late one with 400."""
    pending = _with_grant(tx, pending.interaction)  # as it stands in this unit
    check_undecided(pending, now)
    grant, interaction = pending.grant, pending.interaction
    reference = identifiers.secret() if approve else None
    changed = (
        grants.change_state(tx, grant.id, "pending", "approved")
        if approve
        else grants.change_state(tx, grant.id, "pending", "denied", now)
    )
    assert changed
    grants.decide_interaction(tx, interaction.id, reference, now)
    if approve:
        grants.keep_grant(tx, grant.id)
    else:
        grants.set_forget_at(tx, grant.id, now + DENIED_FOR)
    return Decision(grant.id, approve, _redirect(urls, interaction, reference))


def finish_link(urls: Urls, pending: Pending) -> str | None:
    """The redirect of a decision already made, as it was then; None once the client used it or with no finish URI."""
    if pending.grant.state == "denied":
        return _redirect(urls, pending.interaction, None)
    if pending.grant.state != "approved" or pending.interaction.reference is None:
        return None
    return _redirect(urls, pending.interaction, pending.interaction.reference)


def _redirect(urls: Urls, interaction: InteractionRecord, reference: str | None) -> str | None:
    if interaction.finish_uri is None:
        return None
    if reference is None:
        return finish_url(interaction.finish_uri, {"result": "grant_rejected"})
    assert interaction.client_nonce is not None
    digest = interaction_hash(interaction.client_nonce, interaction.server_nonce, reference, urls.auth_server)
    return finish_url(interaction.finish_uri, {"hash": digest, "interact_ref": reference})


def _with_grant(tx: Transaction, interaction: InteractionRecord) -> Pending:
    grant = grants.find_grant(tx, interaction.grant_id)
    if grant is None:  # forgotten since the interaction was read
        raise _unknown()
    return Pending(grant, interaction)


def _unknown() -> InteractionUnknown:
    return InteractionUnknown("There is no such request for consent; the app can ask again")
