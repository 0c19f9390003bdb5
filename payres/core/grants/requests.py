"""Grant requests: what a client asks for, and how it continues until it has its token (RFC 9635 sections 2 to 5)."""

import hmac
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from payres.core.grants.clients import remember
from payres.core.grants.spending_limits import check_requested_limits
from payres.core.grants.tokens import Presented, emit_grant_event, issue_token, issued_before, revoke_grant
from payres.core.protocol import gnap
from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import (
    ContinuationUnknown,
    GrantDenied,
    GrantNotIssued,
    InvalidClient,
    InvalidRequest,
    TooEarly,
)
from payres.core.protocol.identifiers import hash_secret
from payres.core.protocol.urls import app_scheme, canonical_host, is_loopback, with_ascii_host
from payres.core.protocol.wire import encode
from payres.core.signatures.verify import Verified
from payres.core.store import grants, retention
from payres.core.store.clients import Client
from payres.core.store.grants import GRANTS, INTERACTIONS, GrantRecord, InteractionRecord
from payres.core.store.wallets import WalletRecord, active_wallet
from payres.core.store.work import Transaction, Work

ITEMS = "access_token.access"  # the member of a grant request
REDIRECT = "redirect"  # the only interaction start mode


def request_grant(
    work: Work, request: gnap.GrantRequest, client: Client, client_name: str | None, kid: str | None = None
) -> gnap.GrantResponse:
    """The answer to a grant request: a token, or an interaction.

    `client_name` is the public name of the client's wallet address, for the consent page; `kid` is the key that signed
    the request. Raises InvalidRequest, InvalidClient.
    """
    urls, settings = work.urls, work.settings
    items, subject, owner = _check(work, request, client)
    continue_value = work.new_secret()
    usable_for = settings.access_token_lifetime if owner is None else settings.interaction_lifetime
    retention.purge(work, retention.GRANTS, work.now)
    grant = GrantRecord(
        id=work.new_id(),
        client_id=remember(work, client).id,
        client_name=client_name or client.wallet_address,
        state="issued" if owner is None else "pending",
        access=encode(items).decode(),
        subject=encode(subject).decode() if subject else None,
        wallet_address_id=owner.id if owner else None,
        continue_hash=hash_secret(continue_value),
        waits_from=work.now,
        created_at=work.now,
        ended_at=None,
        purge_at=work.now + usable_for * SECOND + retention.UNUSED_GRANT,
        kid=kid,
    )
    GRANTS.insert(work, grant)
    follow_up = _follow_up(work, grant.id, continue_value, settings.continue_wait if owner else UNSET)
    if owner is None:
        return gnap.GrantResponse(continue_=follow_up, access_token=issue_token(work, grant))
    finish = request.interact.finish if request.interact else None
    interaction = InteractionRecord(
        id=work.new_id(),
        grant_id=grant.id,
        nonce=work.new_secret(),
        finish_uri=_finish_uri(work, finish.uri) if finish else None,
        client_nonce=finish.nonce if finish else None,
        server_nonce=work.new_secret(),
        reference=None,
        expires_at=work.now + settings.interaction_lifetime * SECOND,
        decided_at=None,
    )
    INTERACTIONS.insert(work, interaction)
    redirect = f"{urls.resource('interact', interaction.id)}/{interaction.nonce}"
    return gnap.GrantResponse(continue_=follow_up, interact=gnap.InteractResponse(redirect, interaction.server_nonce))


def asks_for_consent(request: gnap.GrantRequest) -> bool:
    """Whether an owner must consent. A client may offer interaction even if it is not needed."""
    items = request.access_token.access if request.access_token else []
    return bool(request.subject) or any(_needs_consent(item) for item in items)


def find_continuable(tx: Transaction, grant_id: str, token: str) -> GrantRecord:
    """The grant of a continuation token. Raises ContinuationUnknown, also for revoked grants."""
    grant = GRANTS.get(tx, grant_id)
    if grant is None or not hmac.compare_digest(grant.continue_hash, hash_secret(token)) or grant.state == "revoked":
        raise _unknown()
    return grant


def continue_grant(
    work: Work, grant_id: str, token: str, reference: str | None, signed: Verified | None = None
) -> gnap.GrantResponse:
    """The answer to a continuation request with an interact_ref, or to a poll without one; the same again if the token
    in it was not used.

    Raises TooEarly, GrantNotIssued, GrantDenied, ContinuationUnknown, ClientUnproven.
    """
    grant = find_continuable(work, grant_id, token)
    presented = Presented(grant_id, f"{token} {reference or ''}", signed) if signed else None
    interaction = INTERACTIONS.find(work, grant_id=grant_id)
    if interaction is None or grant.state == "issued":
        if (again := issued_before(work, grant, presented)) is not None:
            return _given(work, grant, token, again)
        if reference:
            raise _unknown()
        raise GrantNotIssued("The grant was given already: use its access token, or rotate it", reason="already_issued")
    if grant.state == "denied":
        raise GrantDenied(
            "The wallet's owner denied this grant; ask again only when they want it", reason="owner_denied"
        )
    if grants.has_lapsed(grant.state, interaction.decided_at, work.now):
        lapsed = "The owner approved this too long ago to continue it; ask for a new grant"
        raise GrantNotIssued(lapsed, reason="approval_expired")
    _check_wait(work, grant, interaction)
    if grant.state == "pending":
        return _still_pending(work, grant, interaction, token, reference)
    _check_reference(interaction, reference)
    changed = grants.change_state(work, grant.id, "approved", "issued")
    assert changed
    INTERACTIONS.update(work, interaction.id, reference=None)
    grants.keep_grant(work, grant.id)
    emit_grant_event(work, "grant.issued", grant)
    return _given(work, grant, token, issue_token(work, grant, presented))


def cancel_grant(work: Work, grant_id: str, token: str) -> None:
    """Ends the grant and all its tokens. Raises ContinuationUnknown."""
    find_continuable(work, grant_id, token)
    revoke_grant(work, grant_id)


def _needs_consent(item: gnap.Access) -> bool:
    """Whether an item needs the owner's consent: for spending, or for reading resources of other clients."""
    return isinstance(item, gnap.OutgoingPaymentAccess) or "list-all" in item.actions


def _check(
    work: Work, request: gnap.GrantRequest, client: Client
) -> tuple[list[gnap.Access], gnap.Subject | None, WalletRecord | None]:
    """The requested access and subject, with canonical URLs, and the wallet address whose owner must consent, if any.

    Raises for a request that cannot be granted.
    """
    start = request.interact.start if request.interact else [REDIRECT]
    if REDIRECT not in start and (start or asks_for_consent(request)):
        needed = "Owners decide in a browser: interact.start needs redirect among its modes"
        raise InvalidRequest(needed, field="interact.start")
    asked = request.access_token.access if request.access_token else []
    if not asked and not request.subject:
        raise InvalidRequest("Ask for access_token.access, for subject, or for both", field="access_token")
    if len({msgspec.json.encode(item) for item in asked}) != len(asked):
        raise InvalidRequest("The items of access_token.access must differ", field=ITEMS)
    if sum(isinstance(item, gnap.OutgoingPaymentAccess) and "create" in item.actions for item in asked) > 1:
        raise InvalidRequest(
            "One grant can create outgoing payments by one item only, because limits are of one grant: leave create out"
            " of the others, or ask for a grant for each",
            field=ITEMS,
        )
    checked = [_check_item(work, item) for item in asked]
    owners = [owner for _, owner in checked if owner]
    subject = None
    if request.subject:
        [identifier] = request.subject.sub_ids
        owners.append(active_wallet(work, identifier.id, "subject.sub_ids.id"))
        subject = gnap.Subject([replace(identifier, id=work.urls.wallet(owners[-1].path))])
    if owners:
        _check_consent(work, request, client, owners)
    return list({encode(item): item for item, _ in checked}.values()), subject, owners[0] if owners else None


def _check_consent(work: Work, request: gnap.GrantRequest, client: Client, owners: list[WalletRecord]) -> None:
    """Raises InvalidRequest or InvalidClient if these owners cannot be asked for consent."""
    if len({wallet.id for wallet in owners}) > 1:
        raise InvalidRequest("Ask for the consent of one wallet address at a time", field=ITEMS)
    if client.jwk is not None:
        raise InvalidClient("A client known by its jwk alone cannot ask for consent; use a wallet address")
    if not request.interact:
        raise InvalidRequest("This access needs the owner's consent: say how to interact", field="interact")
    if request.interact.finish:
        _finish_uri(work, request.interact.finish.uri)


def _check_item(work: Work, item: gnap.Access) -> tuple[gnap.Access, WalletRecord | None]:
    """The item with canonical URLs, and the wallet address whose owner must consent to it, if any."""
    if len(set(item.actions)) != len(item.actions):
        raise InvalidRequest("The actions of an access item must differ", field=f"{ITEMS}.actions")
    if not item.identifier:
        if _needs_consent(item):
            needed = "This access needs an identifier: the wallet address it is for"
            raise InvalidRequest(needed, field=f"{ITEMS}.identifier")
        return item, None
    wallet = active_wallet(work, item.identifier, f"{ITEMS}.identifier")
    item = replace(item, identifier=work.urls.wallet(wallet.path))
    if isinstance(item, gnap.OutgoingPaymentAccess) and item.limits:
        check_requested_limits(work, item.limits, wallet.asset)
        if item.limits.receiver:
            receiver = work.urls.canonical_receiver(item.limits.receiver)
            item = replace(item, limits=replace(item.limits, receiver=receiver))
    return item, wallet if _needs_consent(item) else None


def _finish_uri(work: Work, uri: str) -> str:
    """The URI as browsers and other clients understand it. Raises InvalidRequest, also if the redirect would cross the
    network unencrypted (RFC 9635 section 2.5.2)."""
    found = uri if app_scheme(uri) is not None else with_ascii_host(uri)
    if found is not None and not work.settings.allow_private_hosts:
        parts = urlsplit(found)
        if parts.scheme == "http" and not is_loopback(canonical_host(parts.hostname or "")):
            raise InvalidRequest(
                "interact.finish.uri must be https, unless it is on the machine of the browser, such as"
                " http://localhost/done",
                field="interact.finish.uri",
            )
    if found is None:
        raise InvalidRequest(
            "interact.finish.uri must be an absolute http or https URL, or open an application by a scheme of its own"
            " that has a period and is followed by a slash, such as com.example.app:/done",
            field="interact.finish.uri",
        )
    return found


def _follow_up(work: Work, grant_id: str, token: str, wait: int | UnsetType = UNSET) -> gnap.Continue:
    return gnap.Continue(
        access_token=gnap.ContinueToken(token), uri=work.urls.resource("continue", grant_id), wait=wait
    )


def _check_wait(work: Work, grant: GrantRecord, interaction: InteractionRecord) -> None:
    """Raises TooEarly, except after the redirect of a finished interaction."""
    if interaction.finish_uri is not None and interaction.decided_at is not None:
        return
    left = grant.waits_from + work.settings.continue_wait * SECOND - work.now
    if left > 0 and grant.waits_from <= work.now:  # otherwise the clock was set back, perhaps by hours
        seconds = -(-left // SECOND)  # rounded up, so that the wait is over by then
        raise TooEarly(f"Too early: continue in {seconds} s", wait=seconds)


def _still_pending(
    work: Work, grant: GrantRecord, interaction: InteractionRecord, token: str, reference: str | None
) -> gnap.GrantResponse:
    if reference:
        raise _unknown()
    if not grants.is_undecided(grant, interaction, work.now):
        raise GrantNotIssued("The time to decide on this grant is over; ask for a new one", reason="decision_expired")
    if interaction.finish_uri is not None:
        raise GrantNotIssued(
            "The owner has not decided yet; wait for the redirect to your finish URI", reason="undecided"
        )
    GRANTS.update(work, grant.id, waits_from=work.now)
    return gnap.GrantResponse(continue_=_follow_up(work, grant.id, token, work.settings.continue_wait))


def _check_reference(interaction: InteractionRecord, reference: str | None) -> None:
    if reference is None:
        if interaction.finish_uri is not None:
            needed = "Send the interact_ref that the redirect to your finish URI carried"
            raise GrantNotIssued(needed, reason="missing_interact_ref")
    elif interaction.reference is None or not hmac.compare_digest(interaction.reference.encode(), reference.encode()):
        raise _unknown()


def _given(work: Work, grant: GrantRecord, token: str, given: gnap.AccessToken) -> gnap.GrantResponse:
    """The answer with what the grant gives. One for a subject alone has a token too, with no access, so that it is
    answered again; nobody gets that."""
    return gnap.GrantResponse(
        continue_=_follow_up(work, grant.id, token),
        access_token=UNSET if grant.access == "[]" else given,
        subject=msgspec.json.decode(grant.subject, type=gnap.Subject) if grant.subject else UNSET,
    )


def _unknown() -> ContinuationUnknown:
    sentence = "There is no grant to continue with this URI, token and interact_ref"
    return ContinuationUnknown(sentence, reason="unknown_continuation")
