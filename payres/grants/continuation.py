"""Continuation of a grant request during and after interaction (RFC 9635 section 5). Specification 4.10."""

import hmac

import msgspec
from msgspec import UNSET, UnsetType

from payres.clock import SECOND
from payres.errors import ContinuationUnknown, GrantDenied, GrantNotIssued, TooEarly
from payres.grants.consent import has_lapsed
from payres.grants.gnap import Continue, ContinueToken, GrantResponse, Subject
from payres.grants.tokens import emit, issue_token, revoke_grant
from payres.identifiers import hash_secret
from payres.store import grants
from payres.store.grants import GRANTS, INTERACTIONS, GrantRecord, InteractionRecord
from payres.store.work import Transaction, Work


def find_continuable(tx: Transaction, grant_id: str, token: str) -> GrantRecord:
    """The grant of a continuation token. Raises ContinuationUnknown, for revoked grants too."""
    grant = GRANTS.get(tx, grant_id)
    if grant is None or not hmac.compare_digest(grant.continue_hash, hash_secret(token)) or grant.state == "revoked":
        raise _unknown()
    return grant


def continue_grant(work: Work, grant_id: str, token: str, reference: str | None) -> GrantResponse:
    """The answer to a continuation request with an interact_ref, or a poll without.

    Raises TooEarly, GrantNotIssued, GrantDenied, ContinuationUnknown.
    """
    grant = find_continuable(work, grant_id, token)
    interaction = grants.interaction_of_grant(work, grant_id)
    if interaction is None or grant.state == "issued":
        if reference:
            raise _unknown()
        raise _not_issued("already_issued", "The grant was given already: use its access token, or rotate it")
    if grant.state == "denied":
        raise GrantDenied(
            "The wallet's owner denied this grant; ask again only when they want it", reason="owner_denied"
        )
    if has_lapsed(grant, interaction, work.now):
        lapsed = "The owner approved this too long ago to continue it; ask for a new grant"
        raise _not_issued("approval_expired", lapsed)
    _check_wait(work, grant, interaction)
    if grant.state == "pending":
        return _still_pending(work, grant, interaction, token, reference)
    _check_reference(interaction, reference)
    return _issue(work, grant, interaction, token)


def cancel_grant(work: Work, grant_id: str, token: str) -> None:
    """Ends the grant and all its tokens. Raises ContinuationUnknown."""
    find_continuable(work, grant_id, token)
    revoke_grant(work, grant_id)


def _check_wait(work: Work, grant: GrantRecord, interaction: InteractionRecord) -> None:
    """Raises TooEarly, but not after the redirect of a finished interaction: its user has decided."""
    if interaction.finish_uri is not None and interaction.decided_at is not None:
        return
    left = grant.waits_from + work.settings.continue_wait * SECOND - work.now
    if left > 0 and grant.waits_from <= work.now:  # or the clock was set back, perhaps by hours
        seconds = -(-left // SECOND)  # rounded up, so that the wait is over after that many whole seconds
        raise TooEarly(f"Too early: continue in {seconds} s", wait=seconds)


def _still_pending(
    work: Work, grant: GrantRecord, interaction: InteractionRecord, token: str, reference: str | None
) -> GrantResponse:
    if reference:
        raise _unknown()
    if work.now >= interaction.expires_at:
        raise _not_issued("decision_expired", "The time to decide on this grant is over; ask for a new one")
    if interaction.finish_uri is not None:
        raise _not_issued("undecided", "The owner has not decided yet; wait for the redirect to your finish URI")
    GRANTS.update(work, grant.id, waits_from=work.now)
    return GrantResponse(continue_=_follow_up(work, grant, token, work.settings.continue_wait))


def _check_reference(interaction: InteractionRecord, reference: str | None) -> None:
    if reference is None:
        if interaction.finish_uri is not None:
            needed = "Send the interact_ref that the redirect to your finish URI carried"
            raise _not_issued("missing_interact_ref", needed)
    elif interaction.reference is None or not hmac.compare_digest(interaction.reference.encode(), reference.encode()):
        raise _unknown()


def _issue(work: Work, grant: GrantRecord, interaction: InteractionRecord, token: str) -> GrantResponse:
    changed = grants.change_state(work, grant.id, "approved", "issued")
    assert changed
    INTERACTIONS.update(work, interaction.id, reference=None)
    grants.keep_grant(work, grant.id)
    emit(work, "grant.issued", grant)
    return GrantResponse(
        continue_=_follow_up(work, grant, token),
        access_token=UNSET if grant.access == "[]" else issue_token(work, grant),
        subject=msgspec.json.decode(grant.subject, type=Subject) if grant.subject else UNSET,
    )


def _follow_up(work: Work, grant: GrantRecord, token: str, wait: int | UnsetType = UNSET) -> Continue:
    return Continue(access_token=ContinueToken(token), uri=work.urls.resource("continue", grant.id), wait=wait)


def _not_issued(reason: str, sentence: str) -> GrantNotIssued:
    return GrantNotIssued(sentence, reason=reason)


def _unknown() -> ContinuationUnknown:
    sentence = "There is no grant to continue with this URI, token and interact_ref"
    return ContinuationUnknown(sentence, reason="unknown_continuation")
