"""Consent: an owner's decision on a grant request, and how it reaches the client (RFC 9635 section 4).

The owner, signed in, decides on the request exactly as shown; the operator may decide instead. A decision is final.
"""

import hmac
from urllib.parse import quote, urlencode

import msgspec

from payres.core.grants.tokens import emit_grant_event
from payres.core.protocol.errors import InteractionUnknown, InvalidInteraction, WrongState
from payres.core.protocol.gnap import interaction_hash
from payres.core.protocol.urls import Urls
from payres.core.store import grants, retention
from payres.core.store.grants import GRANTS, INTERACTIONS, Decider, GrantRecord, InteractionRecord
from payres.core.store.wallets import WALLETS, WalletRecord
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


def decide(work: Work, pending: Pending, approve: bool, decider: Decider, reason: str | None = None) -> str | None:
    """Approves or denies the grant, which was read in this unit. Returns the URL to send the user to, or None without a
    finish URI. The owner is shown the reason.

    Raises WrongState after a decision, and for the approval for an inactive wallet, InvalidInteraction if the request
    has expired.
    """
    check_undecided(pending, work.now)
    grant, interaction = pending.grant, pending.interaction
    if approve and grant.wallet_address_id is not None:
        check_active(WALLETS.by_id(work, grant.wallet_address_id))
    reference = work.new_secret() if approve else None
    after, ended_at = ("approved", None) if approve else ("denied", work.now)
    changed = grants.change_state(work, grant.id, "pending", after, ended_at)
    assert changed
    GRANTS.update(work, grant.id, purge_at=work.now + retention.DECIDED_GRANT)
    decided = {"decided_at": work.now, "decided_by": decider, "reason": reason}
    INTERACTIONS.update(work, interaction.id, reference=reference, **decided)
    if not approve:
        emit_grant_event(work, "grant.denied", grant)
    return _redirect(work.urls, interaction, reference)


def finish_link(urls: Urls, pending: Pending, now: int) -> str | None:
    """The redirect of an earlier decision.

    None without a finish URI, and for an approval that the client used or let lapse.
    """
    reference = pending.interaction.reference
    if pending.grant.state == "approved":
        is_usable = reference is not None and not grants.has_lapsed(
            pending.grant.state, pending.interaction.decided_at, now
        )
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


def check_active(wallet: WalletRecord) -> None:
    """Raises WrongState if the wallet is inactive: whoever decides, nothing is allowed for it."""
    if not wallet.active:
        sentence = "This wallet is not active, so nothing can be allowed for it now"
        raise WrongState(sentence, reason="inactive_wallet")


def check_undecided(pending: Pending, now: int) -> None:
    """Raises WrongState after a decision or cancellation, InvalidInteraction if the request has expired."""
    if pending.grant.state == "revoked":
        raise WrongState("This request was cancelled")
    if pending.grant.state != "pending":
        raise WrongState("This request has been decided already")
    if not grants.is_undecided(pending.grant, pending.interaction, now):
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
