"""The owner's decision on a grant: what the page shows of the request, and consent to exactly that."""

import hmac
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from payres.core.grants.access import granted_access
from payres.core.grants.consent import Pending, check_undecided, decide, find_pending
from payres.core.protocol.amounts import Asset, parse_value
from payres.core.protocol.errors import InvalidAmount, WrongState
from payres.core.protocol.gnap import OutgoingPaymentAccess
from payres.core.protocol.wire import encode
from payres.core.store import server, wallets
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.clients import CLIENTS, ClientRecord
from payres.core.store.grants import GRANTS
from payres.core.store.payments import INCOMING, IncomingRecord
from payres.core.store.wallets import WALLETS, KeyRecord, WalletRecord
from payres.core.store.work import Work
from payres.html.error_sentences import CLOSED_WALLET, OTHER_REQUEST
from payres.html.sign_in import Browser, check_csrf, find_session, keyed, known_browser, signed_out
from payres.html.store.sessions import OF_WALLETS

# Reads what the owner typed, in the minor unit of the asset asked for; raises InvalidAmount.
ReadLimit = Callable[[Asset], int]


class ConsentRequest(Pending, frozen=True):
    """The request on a consent page.

    session is the browser's, or None unless it belongs to the wallet's owner. known_browser is the hash of the
    browser's secret, or None unless the owner has signed in with it before.
    """

    client: ClientRecord
    wallet: WalletRecord
    session: str | None
    known_browser: bytes | None

    @property
    def decided(self) -> bool:
        return self.grant.state != "pending"

    @property
    def may_finish(self) -> bool:
        """Whether this browser may pass the decision to the client. It must be the owner's: otherwise an attacker could
        get approval by sending the owner the URL of the attacker's request. After an operator's decision, any browser
        with the secret URL may."""
        return self.session is not None or self.interaction.decided_by == "operator"


class Surroundings(NamedTuple):
    """Context that the owner should know: the wallet's free balance, in the minor unit; the local incoming payment to
    be paid, with its wallet; and the wallet's own key, if that signed the request."""

    free: int
    bill: IncomingRecord | None
    receiver: WalletRecord | None
    key: KeyRecord | None


def find_request(work: Work, interaction_id: str, nonce: str, browser: Browser) -> ConsentRequest:
    """The request behind a consent URL, decided or not, for this browser.

    Raises InteractionUnknown.
    """
    pending = find_pending(work, interaction_id, nonce)
    wallet_id = pending.grant.wallet_address_id
    assert wallet_id is not None, "grants with an interaction have a wallet"
    session = browser.session
    found = None if session is None else find_session(work, OF_WALLETS, session)
    return ConsentRequest(
        grant=pending.grant,
        interaction=pending.interaction,
        client=CLIENTS.by_id(work, pending.grant.client_id),
        wallet=WALLETS.by_id(work, wallet_id),
        session=session if found is not None and found.account_id == wallet_id else None,
        known_browser=known_browser(work, OF_WALLETS, wallet_id, browser),
    )


def surroundings(work: Work, request: ConsentRequest) -> Surroundings:
    """The current context of the request."""
    account = ACCOUNTS.by_id(work, request.wallet.account_id)
    receivers = (item.limits.receiver for item in _spending(request.grant.access) if item.limits)
    bill_id = next((work.urls.resource_id("incoming-payments", one) for one in receivers if one), None)
    bill, receiver = (bill_id and wallets.find_with_wallet(work, INCOMING, bill_id)) or (None, None)
    is_own = work.urls.wallet_path(request.client.identity) == request.wallet.path
    return Surroundings(
        free=account.balance - account.held,
        bill=bill,
        receiver=receiver,
        key=wallets.last_key(work, request.wallet.id, request.grant.kid or "") if is_own else None,
    )


def check_open(request: ConsentRequest, now: int) -> None:
    """Raises WrongState after a decision or if the wallet is inactive, InvalidInteraction if the request expired."""
    check_undecided(request, now)
    if not request.wallet.active:
        raise WrongState(CLOSED_WALLET)


def decide_as_owner(
    work: Work, request: ConsentRequest, approve: bool, csrf: str, shown: str, limit: ReadLimit | None = None
) -> str | None:
    """`decide` for the owner. The form's `csrf` and `shown` prove that this browser was shown the request. Approved
    access is reduced to `limit`, see `lowered`.

    `request` was read in the same unit. Raises InvalidAmount for the limit, InvalidInteraction if the request has
    expired, SignInFailed if the browser is not signed in, InsufficientAccess for a forged form, WrongState if it was
    already decided or has changed since it was shown.
    """
    check_open(request, work.now)
    if request.session is None:
        raise signed_out()
    check_csrf(request.session, csrf)
    if not hmac.compare_digest(shown_digest(request).encode(), shown.encode()):
        raise WrongState(OTHER_REQUEST)
    work.actor = request.wallet.actor
    server.record(work, "grant.approve" if approve else "grant.deny", request.grant.id)
    if approve and limit is not None:
        GRANTS.update(work, request.grant.id, access=lowered(request.grant.access, limit))
    return decide(work, request, approve, "owner")


def lowered(access: str, limit: ReadLimit) -> str:
    """The access (JSON text) with the limit per window reduced to `limit`.

    Raises InvalidAmount if it is above the requested limit, or none was requested.
    """
    items = list(granted_access(access))
    for item in _spending(access):
        limits = item.limits or None
        kind = "debit_amount" if limits and limits.debit_amount else "receive_amount"
        amount = getattr(limits, kind) if limits else None
        if limits and amount:
            asked, value = parse_value(amount.value), limit(amount.asset)
            if value > asked:
                raise InvalidAmount("The limit can be lowered and not raised", field="limit")
            if value < asked:  # an equal limit keeps the access byte for byte
                less = msgspec.structs.replace(limits, **{kind: msgspec.structs.replace(amount, value=str(value))})
                lower = msgspec.structs.replace(item, limits=less)
                return encode([lower if one == item else one for one in items]).decode()
            return access
    raise InvalidAmount("There is no limit that could be lowered", field="limit")


def _spending(access: str) -> Sequence[OutgoingPaymentAccess]:
    """The items that permit spending, at most one."""
    return [one for one in granted_access(access) if isinstance(one, OutgoingPaymentAccess) and "create" in one.actions]


def shown_digest(request: ConsentRequest) -> str:
    """A digest of everything that the page shows of a request, bound to the session: consent covers exactly that."""
    assert request.session is not None
    grant, client = request.grant, request.client
    shown = (grant.id, grant.access, grant.subject, grant.client_name, client.identity, request.wallet.path)
    return keyed(request.session, "shown", msgspec.json.encode(shown))
