"""Consent: a wallet owner's decision on a grant, made once, and how the client learns of it (RFC 9635 section 4)."""

import base64
import hashlib
import hmac
from urllib.parse import quote, urlencode

import msgspec

from payres.errors import InteractionUnknown, InvalidInteraction, WrongState
from payres.store import grants
from payres.store.grants import GrantRecord, InteractionRecord
from payres.store.retention import DENIED_GRANT_RETENTION
from payres.store.work import Transaction, Work
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
    """The interaction behind an `interact.redirect` URL, decided or not. Raises InteractionUnknown."""
    interaction = grants.find_interaction(tx, interaction_id)
    if interaction is None or not hmac.compare_digest(interaction.nonce.encode(), nonce.encode()):
        raise _unknown()
    return _with_grant(tx, interaction)


def find_pending_of_grant(tx: Transaction, grant_id: str) -> Pending:
    """The interaction of a grant. Raises InteractionUnknown when it has none."""
    interaction = grants.interaction_of_grant(tx, grant_id)
    if interaction is None:
        raise _unknown()
    return _with_grant(tx, interaction)


def check_undecided(pending: Pending, now: int) -> None:
    """Raises WrongState for what was decided or cancelled, InvalidInteraction for what has expired."""
    if pending.grant.state == "revoked":
        raise WrongState("This request was cancelled")
    if pending.grant.state != "pending":
        raise WrongState("This request has been decided already")
    if now >= pending.interaction.expires_at:
        raise InvalidInteraction("This request has expired; the app can ask again")


def decide(work: Work, pending: Pending, approve: bool) -> Decision:
    """Approves or denies the grant. Raises WrongState for a second decision, InvalidInteraction for a late one."""
    pending = _with_grant(work, pending.interaction)  # as it stands in this unit
    check_undecided(pending, work.now)
    grant, interaction = pending.grant, pending.interaction
    reference = work.new_secret() if approve else None
    changed = (
        grants.change_state(work, grant.id, "pending", "approved")
        if approve
        else grants.change_state(work, grant.id, "pending", "denied", work.now)
    )
    assert changed
    grants.decide_interaction(work, interaction.id, reference, work.now)
    if approve:
        grants.keep_grant(work, grant.id)
    else:
        grants.set_purge_at(work, grant.id, work.now + DENIED_GRANT_RETENTION)
    return Decision(grant.id, approve, _redirect(work.urls, interaction, reference))


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
    if grant is None:  # purged since the interaction was read
        raise _unknown()
    return Pending(grant, interaction)


def _unknown() -> InteractionUnknown:
    return InteractionUnknown("There is no such request for consent; the app can ask again")


def interaction_hash(client_nonce: str, server_nonce: str, reference: str, grant_endpoint: str) -> str:
    """RFC 9635 section 4.2.3, in standard base64 with padding as every existing client computes it."""
    text = "\n".join((client_nonce, server_nonce, reference, grant_endpoint))
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def finish_url(uri: str, parameters: dict[str, str]) -> str:
    """The client's finish URI with parameters added; all that it has of its own stays as it is, byte for byte."""
    before, fragment_mark, fragment = uri.partition("#")
    added = urlencode(parameters, quote_via=quote, safe="")
    _, question_mark, query = before.partition("?")
    joint = "&" if query and not query.endswith("&") else "" if question_mark else "?"
    return f"{before}{joint}{added}{fragment_mark}{fragment}"
