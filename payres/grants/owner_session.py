"""The signed-in browser of a wallet's owner, and what it decides: grants of that wallet, and only as shown."""

import hashlib
import hmac

import msgspec

from payres.clock import MINUTE
from payres.errors import InsufficientAccess, SignInFailed, WrongState
from payres.grants import consent
from payres.grants.consent import Decision, Pending
from payres.grants.sign_in import wrong_password
from payres.identifiers import Identifiers, hash_secret
from payres.store import clients, sessions, wallets
from payres.store.clients import ClientRecord
from payres.store.database import Transaction
from payres.store.grants import GrantRecord
from payres.store.wallets import WalletRecord
from payres.urls import Urls

LIFETIME = 15 * MINUTE
# A session as a regular expression: 256 bits of URL-safe base64, as Identifiers.secret makes them.
VALUE = rb"[A-Za-z0-9_-]{43}"


class ConsentRequest(msgspec.Struct, frozen=True):
    """What a consent page is about. session is the browser's, present only when it belongs to the wallet's owner.

    known_browser is there when the owner has signed in with this browser before, and names it.
    """

    pending: Pending
    client: ClientRecord
    wallet: WalletRecord
    session: str | None
    known_browser: bytes | None

    @property
    def grant(self) -> GrantRecord:
        return self.pending.grant

    @property
    def decided(self) -> bool:
        return self.grant.state != "pending"


class OwnerDecision(msgspec.Struct, frozen=True):
    """What the owner's form sends: the decision, and the proofs that this browser was shown this request."""

    approve: bool
    csrf: str
    shown: str


def find_request(tx: Transaction, interaction_id: str, nonce: str, session: str | None, now: int) -> ConsentRequest:
    """The request behind a consent URL, decided or not; `session` is what the cookie says.

    Refuses with 404 `unknown_interaction`.
    """
    pending = consent.find_pending(tx, interaction_id, nonce)
    wallet_id = pending.grant.wallet_address_id
    assert wallet_id is not None, "only a grant that its owner must consent to has an interaction"
    browser = hash_secret(session) if session is not None else None
    signed_in = browser is not None and sessions.session_wallet(tx, browser, now) == wallet_id
    is_known = browser is not None and sessions.knows_browser(tx, browser, wallet_id, now)
    return ConsentRequest(
        pending=pending,
        client=clients.client_by_id(tx, pending.grant.client_id),
        wallet=wallets.wallet_by_id(tx, wallet_id),
        session=session if signed_in else None,
        known_browser=browser if is_known else None,
    )


def check_open(request: ConsentRequest, now: int) -> None:
    """Refuses with 409 `wrong_state` what was decided or whose wallet is inactive, with 400 what has expired."""
    consent.check_undecided(request.pending, now)
    if not request.wallet.active:
        raise WrongState("This wallet is not active, so nothing can be allowed for it now")


def open_session(
    tx: Transaction, verified: WalletRecord, replaced: str | None, identifiers: Identifiers, now: int
) -> str:
    """A session for the owner whose password matched `verified`; it takes the place of the one in `replaced`.

    The value is always new, so that nobody can have planted it before the sign-in. Refuses with 401 when the password
    was changed while it was being checked.
    """
    if wallets.wallet_by_id(tx, verified.id).password_hash != verified.password_hash:
        raise wrong_password()
    if replaced is not None:
        sessions.delete_session(tx, hash_secret(replaced))
    value = identifiers.secret()
    sessions.insert_session(tx, hash_secret(value), verified.id, now, now + LIFETIME)
    return value


def close_session(tx: Transaction, request: ConsentRequest, csrf: str) -> None:
    """Signs the browser out; nothing happens when it is not signed in. Refuses with 403 a forged form."""
    if request.session is not None:
        check_csrf(request.session, csrf)
        sessions.delete_session(tx, hash_secret(request.session))


def decide_as_owner(
    tx: Transaction, urls: Urls, request: ConsentRequest, given: OwnerDecision, identifiers: Identifiers, now: int
) -> Decision:
    """Approves or denies the request in its owner's name. `request` is found in the same unit.

    Refuses with 400 what has expired, 401 a browser that is not signed in, 403 a forged form, 409 `wrong_state` what
    was decided already or is not what the owner saw.
    """
    check_open(request, now)
    if request.session is None:
        signed_out = "You are signed out by now: a sign-in lasts for 15 minutes. Sign in again"
        raise SignInFailed(signed_out, reason="signed_out")
    check_csrf(request.session, given.csrf)
    if not hmac.compare_digest(shown_digest(request).encode(), given.shown.encode()):
        raise WrongState("This is not the request that you were shown. Nothing was decided; please read it again")
    return consent.decide(tx, urls, request.pending, given.approve, identifiers, now)


def csrf_token(session: str) -> str:
    """What proves that a form was filled in on a page of this session: another site cannot know it."""
    return _keyed(session, "csrf")


def check_csrf(session: str, token: str) -> None:
    """Refuses with 403 a token that is not of this session."""
    if not hmac.compare_digest(csrf_token(session).encode(), token.encode()):
        raise InsufficientAccess(
            "This form belongs to an earlier sign-in. Nothing was decided; open it again", reason="csrf"
        )


def shown_digest(request: ConsentRequest) -> str:
    """A digest of all that the page shows of a request, bound to the session, so that consent is for just that."""
    assert request.session is not None
    grant, client = request.grant, request.client
    shown = (grant.id, grant.access, grant.subject, grant.client_name, client.identity, request.wallet.path)
    return _keyed(request.session, "shown", msgspec.json.encode(shown))


def _keyed(session: str, purpose: str, content: bytes = b"") -> str:
    return hmac.new(session.encode(), purpose.encode() + b"\n" + content, hashlib.sha256).hexdigest()
