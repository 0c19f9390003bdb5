"""Grant requests (RFC 9635 section 2): checked, and granted at once or held for the wallet owner's consent."""

import msgspec

from payres.amounts import Asset
from payres.errors import InvalidClient, InvalidRequest
from payres.grants.access import encode_access
from payres.grants.clients import Client, remember
from payres.grants.forgetting import UNUSED_FOR, forget_grants
from payres.grants.limit_request import check_requested_limits
from payres.grants.tokens import issue_token
from payres.identifiers import Identifiers, hash_secret
from payres.settings import Settings
from payres.store import grants, wallets
from payres.store.database import Transaction
from payres.store.grants import GrantRecord, InteractionRecord
from payres.store.wallets import WalletRecord
from payres.urls import Urls, is_http_url
from payres.wire import (
    Access,
    Continue,
    ContinueToken,
    GrantRequest,
    GrantResponse,
    InteractResponse,
    OutgoingPaymentAccess,
    Subject,
    encode,
)

MICROSECONDS = 1_000_000


def request_grant(
    tx: Transaction,
    urls: Urls,
    settings: Settings,
    request: GrantRequest,
    client: Client,
    client_name: str | None,
    identifiers: Identifiers,
    now: int,
) -> GrantResponse:
    """The answer to a grant request: a token, or where to interact. Refuses with 400.

    `client_name` is the public name of the client's wallet address, shown when consent is asked.
    """
    asked = list(request.access_token.access) if request.access_token else []
    owner = _check(tx, urls, request, client, asked, now)
    items = _plain_items(urls, asked)
    continue_value = identifiers.secret()
    usable_for = settings.access_token_lifetime if owner is None else settings.interaction_lifetime
    forget_grants(tx, now)
    grant = GrantRecord(
        id=identifiers.resource(),
        client_id=remember(tx, client, now).id,
        client_name=client_name or client.wallet_address,
        state="issued" if owner is None else "pending",
        access=encode_access(items),
        subject=encode(_plain_subject(urls, request.subject)).decode() if request.subject else None,
        wallet_address_id=owner.id if owner else None,
        continue_hash=hash_secret(continue_value),
        waits_from=now,
        created_at=now,
        ended_at=None,
        forget_at=now + usable_for * MICROSECONDS + UNUSED_FOR,
    )
    grants.insert_grant(tx, grant)
    follow_up = Continue(
        access_token=ContinueToken(continue_value),
        uri=urls.resource("continue", grant.id),
        wait=settings.continue_wait if owner else msgspec.UNSET,
    )
    if owner is None:
        token = issue_token(tx, urls, grant, identifiers, settings.access_token_lifetime, now)
        return GrantResponse(continue_=follow_up, access_token=token)
    interaction = _open_interaction(tx, request, grant.id, identifiers, settings.interaction_lifetime, now)
    redirect = f"{urls.resource('interact', interaction.id)}/{interaction.nonce}"
    return GrantResponse(continue_=follow_up, interact=InteractResponse(redirect, interaction.server_nonce))


def asks_for_consent(request: GrantRequest) -> bool:
    """Whether an owner will have to be asked; a client may offer to interact when that is not needed."""
    items = request.access_token.access if request.access_token else []
    return bool(request.subject) or any(needs_consent(item) for item in items)


def needs_consent(item: Access) -> bool:
    """Spending always does; so does seeing what other clients made."""
    return isinstance(item, OutgoingPaymentAccess) or "list-all" in item.actions


def _check(
    tx: Transaction, urls: Urls, request: GrantRequest, client: Client, items: list[Access], now: int
) -> WalletRecord | None:
    """The wallet address whose owner must consent, None when nobody must. Refuses what cannot be granted with 400."""
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
    owners = [wallet for item in items if (wallet := _check_item(tx, urls, item, now)) and needs_consent(item)]
    if request.subject:
        owners.append(_subject_wallet(tx, urls, request.subject.sub_ids[0].id))
    if not owners:
        return None
    if len({wallet.id for wallet in owners}) > 1:
        raise InvalidRequest("Ask for the consent of one wallet address at a time", field="access_token.access")
    if client.jwk is not None:
        raise InvalidClient("A client known by its jwk alone cannot ask for consent; use a wallet address")
    if not request.interact:
        raise InvalidRequest("This access needs the owner's consent: say how to interact", field="interact")
    if request.interact.finish and not is_http_url(request.interact.finish.uri):
        raise InvalidRequest("interact.finish.uri must be an absolute http or https URL", field="interact.finish.uri")
    return owners[0]


def _check_item(tx: Transaction, urls: Urls, item: Access, now: int) -> WalletRecord | None:
    """The wallet address that the item names, if it names one."""
    if len(set(item.actions)) != len(item.actions):
        raise InvalidRequest("The actions of an access item must differ", field="access_token.access.actions")
    if not item.identifier:
        if needs_consent(item):
            raise InvalidRequest(
                "This access needs an identifier: the wallet address it is for", field="access_token.access.identifier"
            )
        return None
    wallet = _local_wallet(tx, urls, item.identifier, "access_token.access.identifier")
    if isinstance(item, OutgoingPaymentAccess) and item.limits:
        check_requested_limits(tx, urls, item.limits, Asset(wallet.asset_code, wallet.asset_scale), now)
    return wallet


def _plain_items(urls: Urls, items: list[Access]) -> list[Access]:
    """The checked items with the plain forms of their URLs; what then is one item counts once."""
    plain: dict[bytes, Access] = {}
    for item in items:
        if item.identifier:
            item = msgspec.structs.replace(item, identifier=_plain_wallet(urls, item.identifier))
        if isinstance(item, OutgoingPaymentAccess) and item.limits and item.limits.receiver:
            limits = msgspec.structs.replace(item.limits, receiver=urls.plain_receiver(item.limits.receiver))
            item = msgspec.structs.replace(item, limits=limits)
        plain.setdefault(encode(item), item)
    return list(plain.values())


def _plain_subject(urls: Urls, subject: Subject) -> Subject:
    [asked] = subject.sub_ids
    return Subject([msgspec.structs.replace(asked, id=_plain_wallet(urls, asked.id))])


def _plain_wallet(urls: Urls, url: str) -> str:
    path = urls.wallet_path(url)
    assert path is not None, "it was found to be a wallet address here"
    return urls.wallet(path)


def _subject_wallet(tx: Transaction, urls: Urls, url: str) -> WalletRecord:
    return _local_wallet(tx, urls, url, "subject.sub_ids.id")


def _local_wallet(tx: Transaction, urls: Urls, url: str, field: str) -> WalletRecord:
    path = urls.wallet_path(url)
    wallet = wallets.find_wallet(tx, path) if path is not None else None
    if wallet is None or not wallet.active:
        raise InvalidRequest(f"{url} is not an active wallet address of this server", field=field)
    return wallet


def _open_interaction(
    tx: Transaction, request: GrantRequest, grant_id: str, identifiers: Identifiers, lifetime: int, now: int
) -> InteractionRecord:
    finish = request.interact.finish if request.interact else None
    interaction = InteractionRecord(
        id=identifiers.resource(),
        grant_id=grant_id,
        nonce=identifiers.secret(),
        finish_uri=finish.uri if finish else None,
        client_nonce=finish.nonce if finish else None,
        server_nonce=identifiers.secret(),
        reference=None,
        expires_at=now + lifetime * MICROSECONDS,
        decided_at=None,
    )
    grants.insert_interaction(tx, interaction)
    return interaction
