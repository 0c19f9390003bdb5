"""Grant requests (RFC 9635 section 2): checked, and granted at once or held for the wallet owner's consent."""

import msgspec

from payres.clock import SECOND
from payres.errors import InvalidClient, InvalidRequest
from payres.grants.access import Access, OutgoingPaymentAccess
from payres.grants.clients import Client, remember
from payres.grants.gnap import Continue, ContinueToken, GrantRequest, GrantResponse, InteractResponse, Subject
from payres.grants.limits import check_requested_limits
from payres.grants.tokens import issue_token
from payres.identifiers import hash_secret
from payres.store import retention
from payres.store.grants import GRANTS, INTERACTIONS, GrantRecord, InteractionRecord
from payres.store.wallets import WalletRecord
from payres.store.work import Work
from payres.urls import Urls, app_scheme, with_ascii_host
from payres.wallet_addresses import active_wallet
from payres.wire import encode


def request_grant(work: Work, request: GrantRequest, client: Client, client_name: str | None) -> GrantResponse:
    """The answer to a grant request: a token, or where to interact.

    `client_name` is the public name of the client's wallet address, shown when consent is asked. Raises InvalidRequest,
    InvalidClient.
    """
    urls, settings = work.urls, work.settings
    asked = list(request.access_token.access) if request.access_token else []
    owner = _check(work, request, client, asked)
    items = _canonical_items(urls, asked)
    continue_value = work.new_secret()
    usable_for = settings.access_token_lifetime if owner is None else settings.interaction_lifetime
    retention.purge(work, retention.GRANTS, work.now)
    grant = GrantRecord(
        id=work.new_id(),
        client_id=remember(work, client).id,
        client_name=client_name or client.wallet_address,
        state="issued" if owner is None else "pending",
        access=encode(items).decode(),
        subject=encode(_canonical_subject(urls, request.subject)).decode() if request.subject else None,
        wallet_address_id=owner.id if owner else None,
        continue_hash=hash_secret(continue_value),
        waits_from=work.now,
        created_at=work.now,
        ended_at=None,
        purge_at=work.now + usable_for * SECOND + retention.UNUSED_GRANT,
    )
    GRANTS.insert(work, grant)
    follow_up = Continue(
        access_token=ContinueToken(continue_value),
        uri=urls.resource("continue", grant.id),
        wait=settings.continue_wait if owner else msgspec.UNSET,
    )
    if owner is None:
        return GrantResponse(continue_=follow_up, access_token=issue_token(work, grant))
    interaction = _open_interaction(work, request, grant.id)
    redirect = f"{urls.resource('interact', interaction.id)}/{interaction.nonce}"
    return GrantResponse(continue_=follow_up, interact=InteractResponse(redirect, interaction.server_nonce))


def asks_for_consent(request: GrantRequest) -> bool:
    """Whether an owner must consent. A client may offer to interact although that is not needed."""
    items = request.access_token.access if request.access_token else []
    return bool(request.subject) or any(needs_consent(item) for item in items)


def needs_consent(item: Access) -> bool:
    """Whether an item needs the owner's consent: spending does, and so does reading resources of other clients."""
    return isinstance(item, OutgoingPaymentAccess) or "list-all" in item.actions


def _check(work: Work, request: GrantRequest, client: Client, items: list[Access]) -> WalletRecord | None:
    """The wallet address whose owner must consent, None when nobody must. Raises for a request that cannot be
    granted."""
    if not items and not request.subject:
        raise InvalidRequest("Ask for access_token.access, for subject, or for both", field="access_token")
    if len({msgspec.json.encode(item) for item in items}) != len(items):
        raise InvalidRequest("The items of access_token.access must differ", field="access_token.access")
    if sum(isinstance(item, OutgoingPaymentAccess) and "create" in item.actions for item in items) > 1:
        raise InvalidRequest(
            "One grant can create outgoing payments by one item only, because limits are of one grant: leave create out"
            " of the others, or ask for a grant for each",
            field="access_token.access",
        )
    owners = [wallet for item in items if (wallet := _check_item(work, item)) and needs_consent(item)]
    if request.subject:
        owners.append(active_wallet(work, request.subject.sub_ids[0].id, "subject.sub_ids.id"))
    if not owners:
        return None
    if len({wallet.id for wallet in owners}) > 1:
        raise InvalidRequest("Ask for the consent of one wallet address at a time", field="access_token.access")
    if client.jwk is not None:
        raise InvalidClient("A client known by its jwk alone cannot ask for consent; use a wallet address")
    if not request.interact:
        raise InvalidRequest("This access needs the owner's consent: say how to interact", field="interact")
    if request.interact.finish:
        _finish_uri(request.interact.finish.uri)
    return owners[0]


def _finish_uri(uri: str) -> str:
    """The URI as browsers and other clients understand it. Raises InvalidRequest."""
    found = uri if app_scheme(uri) is not None else with_ascii_host(uri)
    if found is None:
        raise InvalidRequest(
            "interact.finish.uri must be an absolute http or https URL, or open an application by a scheme of its own"
            " that has a period and is followed by a slash, such as com.example.app:/done",
            field="interact.finish.uri",
        )
    return found


def _check_item(work: Work, item: Access) -> WalletRecord | None:
    """The wallet address that the item names, if it names one."""
    if len(set(item.actions)) != len(item.actions):
        raise InvalidRequest("The actions of an access item must differ", field="access_token.access.actions")
    if not item.identifier:
        if needs_consent(item):
            raise InvalidRequest(
                "This access needs an identifier: the wallet address it is for", field="access_token.access.identifier"
            )
        return None
    wallet = active_wallet(work, item.identifier, "access_token.access.identifier")
    if isinstance(item, OutgoingPaymentAccess) and item.limits:
        check_requested_limits(work, item.limits, wallet.asset)
    return wallet


def _canonical_items(urls: Urls, items: list[Access]) -> list[Access]:
    """The checked items with canonical URLs, without duplicates."""
    canonical: dict[bytes, Access] = {}
    for item in items:
        if item.identifier:
            item = msgspec.structs.replace(item, identifier=_canonical_wallet(urls, item.identifier))
        if isinstance(item, OutgoingPaymentAccess) and item.limits and item.limits.receiver:
            limits = msgspec.structs.replace(item.limits, receiver=urls.canonical_receiver(item.limits.receiver))
            item = msgspec.structs.replace(item, limits=limits)
        canonical.setdefault(encode(item), item)
    return list(canonical.values())


def _canonical_subject(urls: Urls, subject: Subject) -> Subject:
    [asked] = subject.sub_ids
    return Subject([msgspec.structs.replace(asked, id=_canonical_wallet(urls, asked.id))])


def _canonical_wallet(urls: Urls, url: str) -> str:
    path = urls.wallet_path(url)
    assert path is not None, "it was found to be a wallet address here"
    return urls.wallet(path)


def _open_interaction(work: Work, request: GrantRequest, grant_id: str) -> InteractionRecord:
    finish = request.interact.finish if request.interact else None
    interaction = InteractionRecord(
        id=work.new_id(),
        grant_id=grant_id,
        nonce=work.new_secret(),
        finish_uri=_finish_uri(finish.uri) if finish else None,
        client_nonce=finish.nonce if finish else None,
        server_nonce=work.new_secret(),
        reference=None,
        expires_at=work.now + work.settings.interaction_lifetime * SECOND,
        decided_at=None,
    )
    INTERACTIONS.insert(work, interaction)
    return interaction
