"""Continuation of a grant request during and after interaction (part 4.10, RFC 9635 section 5)."""

import hmac

import msgspec

from payres.errors import ContinuationUnknown, GrantDenied, GrantNotIssued, TooEarly
from payres.grants.tokens import issue_token
from payres.identifiers import Identifiers, hash_secret
from payres.settings import Settings
from payres.store import grants
from payres.store.database import Transaction
from payres.store.grants import GrantRecord, InteractionRecord
from payres.urls import Urls
from payres.wire import AccessToken, Continue, ContinueToken, GrantResponse, Subject

MICROSECONDS = 1_000_000


def find_continuable(tx: Transaction, grant_id: str, token: str) -> GrantRecord:
    """The grant whose continuation token this is. Refuses with 404 `invalid_continuation`, revoked grants too."""
    grant = grants.find_grant(tx, grant_id)
    if grant is None or not hmac.compare_digest(grant.continue_hash, hash_secret(token)) or grant.state == "revoked":
        raise _unknown()
    return grant


def continue_grant(
    tx: Transaction,
    urls: Urls,
    settings: Settings,
    grant_id: str,
    token: str,
    reference: str | None,
    identifiers: Identifiers,
    now: int,
) -> GrantResponse:
    """The answer to a continuation request with an interact_ref, or a poll without.

    Refuses with 400 `too_fast`, 401 `request_denied` or `user_denied`, 404 `invalid_continuation`.
    """
    grant = find_continuable(tx, grant_id, token)
    interaction = grants.interaction_of_grant(tx, grant_id)
    if interaction is None or grant.state == "issued":
        if reference:
            raise _unknown()
        raise _denied("already_issued", "The grant was given already: use its access token, or rotate it")
    if grant.state == "denied":
        raise GrantDenied(
            "The wallet's owner denied this grant; ask again only when they want it", reason="owner_denied"
        )
    _check_wait(grant, interaction, settings.continue_wait, now)
    if grant.state == "pending":
        return _still_pending(tx, urls, settings, grant, interaction, token, reference, now)
    _check_reference(interaction, reference)
    return _issue(tx, urls, settings, grant, interaction, token, identifiers, now)


def _check_wait(grant: GrantRecord, interaction: InteractionRecord, wait: int, now: int) -> None:
    """The redirect of a finished interaction proves that its user has decided, so that is never too early."""
    if interaction.finish_uri is not None and interaction.decided_at is not None:
        return
    left = grant.waits_from + wait * MICROSECONDS - now
    if left > 0 and grant.waits_from <= now:  # or the clock was set back, perhaps by hours
        seconds = -(-left // MICROSECONDS)  # rounded up: after that many whole seconds the time has come
        raise TooEarly(f"Too early: continue in {seconds} s", wait=seconds)


def _still_pending(
    tx: Transaction,
    urls: Urls,
    settings: Settings,
    grant: GrantRecord,
    interaction: InteractionRecord,
    token: str,
    reference: str | None,
    now: int,
) -> GrantResponse:
    if reference:
        raise _unknown()
    if now >= interaction.expires_at:
        raise _denied("decision_expired", "The time to decide on this grant is over; ask for a new one")
    if interaction.finish_uri is not None:
        raise _denied("undecided", "The owner has not decided yet; wait for the redirect to your finish URI")
    grants.set_waits_from(tx, grant.id, now)
    return GrantResponse(continue_=_follow_up(urls, grant, token, settings.continue_wait))


def _check_reference(interaction: InteractionRecord, reference: str | None) -> None:
    if interaction.finish_uri is None and reference is None:
        return
    if reference is None:
        raise _denied("missing_interact_ref", "Send the interact_ref that the redirect to your finish URI carried")
    if interaction.reference is None or not hmac.compare_digest(interaction.reference.encode(), reference.encode()):
        raise _unknown()


def _issue(
    tx: Transaction,
    urls: Urls,
    settings: Settings,
    grant: GrantRecord,
    interaction: InteractionRecord,
    token: str,
    identifiers: Identifiers,
    now: int,
) -> GrantResponse:
    changed = grants.change_state(tx, grant.id, "approved", "issued")
    assert changed
    grants.use_reference(tx, interaction.id)
    access_token: AccessToken | msgspec.UnsetType = msgspec.UNSET
    if grant.access != "[]":
        access_token = issue_token(tx, urls, grant, identifiers, settings.access_token_lifetime, now)
    subject = msgspec.json.decode(grant.subject, type=Subject) if grant.subject else msgspec.UNSET
    return GrantResponse(continue_=_follow_up(urls, grant, token), access_token=access_token, subject=subject)


def _follow_up(urls: Urls, grant: GrantRecord, token: str, wait: int | None = None) -> Continue:
    return Continue(
        access_token=ContinueToken(token),
        uri=urls.resource("continue", grant.id),
        wait=msgspec.UNSET if wait is None else wait,
    )


def _denied(reason: str, description: str) -> GrantNotIssued:
    return GrantNotIssued(description, reason=reason)


def _unknown() -> ContinuationUnknown:
    description = "There is no grant to continue with this URI, token and interact_ref"
    return ContinuationUnknown(description, reason="unknown_continuation")
