"""What an app asks an owner for on a consent page: what the owner should know of it, and consent to exactly that."""

import hmac
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from payres.accounts.notices import notify_of_app
from payres.accounts.second_step import signed_out
from payres.accounts.sessions import Browser, check_csrf, find_session, is_stale, keyed, known_browser
from payres.accounts.store.owners import OF_OWNERS, OwnerRecord, owner_of
from payres.core.grants.access import granted_access
from payres.core.grants.consent import Pending, check_active, check_undecided, decide, find_pending
from payres.core.grants.spending_limits import spending_of
from payres.core.protocol.amounts import Asset, parse_value
from payres.core.protocol.clock import DAY
from payres.core.protocol.errors import InvalidAmount, WrongState
from payres.core.protocol.gnap import Limits, OutgoingPaymentAccess
from payres.core.protocol.identifiers import hash_secret
from payres.core.protocol.wire import Amount, encode
from payres.core.store import audit, wallets
from payres.core.store.clients import CLIENTS, ClientRecord
from payres.core.store.grants import GRANTS
from payres.core.store.incoming_payments import IncomingRecord, payment_at
from payres.core.store.representations import amount
from payres.core.store.wallets import WALLETS, KeyRecord, WalletRecord
from payres.core.store.work import Work
from payres.html.sentences import OTHER_REQUEST
from payres.people.own_wallets import spendable
from payres.people.store import activity
from payres.people.store.payments import state_of_bill
from payres.people.store.remote_bills import REMOTE_BILLS, RemoteBillRecord

USUAL_DAYS: Final = 90  # in which limits that were approved make one usual


# Reads what the owner typed, in the minor unit of the asset asked for; raises InvalidAmount.
ReadLimit = Callable[[Asset], int]


class ConsentRequest(Pending, frozen=True):
    """The request on a consent page.

    session is the browser's, or None unless it belongs to the owner. known_browser is the hash of the
    browser's secret, or None unless the owner has signed in with it before. bill is the only one that may be paid, if
    it is at another server and was read; outcome is the state of its payment, if there is one.
    """

    client: ClientRecord
    wallet: WalletRecord
    owner: OwnerRecord
    session: str | None
    known_browser: bytes | None
    bill: RemoteBillRecord | None
    outcome: str | None

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
    found = None if session is None else find_session(work, OF_OWNERS, session)
    owner, spending = owner_of(work, wallet_id), spending_of(pending.grant.access)
    return ConsentRequest(
        grant=pending.grant,
        interaction=pending.interaction,
        client=CLIENTS.by_id(work, pending.grant.client_id),
        wallet=WALLETS.by_id(work, wallet_id),
        owner=owner,
        session=session if found is not None and found.account_id == owner.id else None,
        bill=REMOTE_BILLS.get(work, pending.grant.id),
        outcome=state_of_bill(work, pending.grant.id) if spending and spending.is_for_a_bill else None,
        known_browser=known_browser(work, OF_OWNERS, owner.id, browser),
    )


def surroundings(work: Work, request: ConsentRequest) -> Surroundings:
    """The current context of the request."""
    receivers = (item.limits.receiver for item in _spending(request.grant.access) if item.limits)
    bill, receiver = next((payment_at(work, one) for one in receivers if one), None) or (None, None)
    is_own = work.urls.wallet_path(request.client.identity) == request.wallet.path
    return Surroundings(
        free=spendable(work, request.wallet),
        bill=bill,
        receiver=receiver,
        key=wallets.last_key(work, request.wallet.id, request.grant.kid or "") if is_own else None,
    )


def check_open(request: ConsentRequest, now: int) -> None:
    """Raises WrongState after a decision or if the wallet is inactive, InvalidInteraction if the request expired."""
    check_undecided(request, now)
    check_active(request.wallet)


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
    # What the bill's server publishes may have come after the page was shown without it.
    digests = {shown_digest(one) for one in (request, msgspec.structs.replace(request, bill=None))}
    if not any(hmac.compare_digest(one.encode(), shown.encode()) for one in digests):
        raise WrongState(OTHER_REQUEST)
    work.actor, work.in_session = request.owner.actor, hash_secret(request.session)
    audit.record(work, "grant.approve" if approve else "grant.deny", request.grant.id)
    if approve and limit is not None:
        GRANTS.update(work, request.grant.id, access=lowered(request.grant.access, limit, request.wallet.asset))
    if approve:
        notify_of_app(work, "app", request.grant)
    return decide(work, request, approve, "owner")


def lowered(access: str, limit: ReadLimit, asset: Asset) -> str:
    """The access (JSON text) with the limit per window reduced to `limit`. If none was requested, it limits the debit
    amount, in `asset`.

    Raises InvalidAmount if it is above the requested limit, or nothing may be spent.
    """
    items = list(granted_access(access))
    for item in _spending(access):
        limits = item.limits or Limits()
        kind = "receive_amount" if limits.receive_amount else "debit_amount"
        asked: Amount | None = getattr(limits, kind) or None
        value, unit = limit(asked.asset if asked else asset), asked.asset if asked else asset
        if asked and value > parse_value(asked.value):
            raise InvalidAmount("The limit can be lowered and not raised", field="limit")
        if asked and value == parse_value(asked.value):
            return access  # byte for byte
        lower = msgspec.structs.replace(item, limits=msgspec.structs.replace(limits, **{kind: amount(value, unit)}))
        return encode([lower if one == item else one for one in items]).decode()
    raise InvalidAmount("There is nothing to limit", field="limit")


def _spending(access: str) -> Sequence[OutgoingPaymentAccess]:
    """The items that permit spending, at most one."""
    return [one for one in granted_access(access) if isinstance(one, OutgoingPaymentAccess) and "create" in one.actions]


def is_stale_for(work: Work, request: ConsentRequest, limit: ReadLimit | None) -> bool:
    """Whether approving the request with this limit needs a second factor that the owner has not just given: it does
    without a limit, and for one that lets more be spent in a month than both the most that was approved in the last 90
    days and the amount of the owner. So 5.00 every second is not as usual as 5.00 once.

    Raises InvalidAmount for the limit, SignInFailed.
    """
    spending = spending_of(request.grant.access)
    if spending is None or request.session is None or not is_stale(work, OF_OWNERS, request.session):
        return False
    asset = spending.asset or request.wallet.asset
    values = [spending.value, None if limit is None else limit(asset)]
    most = spending._replace(value=min((one for one in values if one is not None), default=None)).a_month
    if most is None:
        return True
    approved = map(spending_of, activity.access_approved(work, request.wallet.id, work.now, USUAL_DAYS * DAY))
    usual = [one.a_month for one in approved if one and one.a_month and one.asset == asset]
    if asset == request.wallet.asset:
        usual.append(activity.asked_above(work, request.wallet.id))
    return most > max(usual, default=0)


def shown_digest(request: ConsentRequest) -> str:
    """A digest of everything that the page shows of a request, bound to the session: consent covers exactly that."""
    assert request.session is not None
    grant, client = request.grant, request.client
    about = grant.id, grant.access, grant.subject, grant.client_name, client.identity
    return keyed(request.session, "shown", msgspec.json.encode((*about, request.wallet.path, request.bill)))
