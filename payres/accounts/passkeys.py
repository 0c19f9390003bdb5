"""Passkeys (WebAuthn Level 3) of owners and operators: adding one, and what one has signed.

A challenge is not stored. It has its time, and a digest under a secret of the server over the secret of the browser and
the purpose: what a passkey signs is good in the browser that asked, for what it asked, for ten minutes and once.
`fido2` reads and verifies what authenticators send; it is loaded when the first passkey is used.
"""

import hmac
import ipaddress
import secrets
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request

from payres.accounts.browser_names import seen_of
from payres.accounts.limits import MAX_PASSKEYS
from payres.accounts.recovery_codes import first_recovery_codes
from payres.accounts.second_step import Held, Refused, SecondStep, Take, audit_action, record
from payres.accounts.store.kinds import Account, Kind
from payres.accounts.store.passkeys import (
    PASSKEY_TABLE,
    PasskeyRecord,
    count_passkeys,
    passkeys_of,
    use_challenge,
)
from payres.accounts.store.second_factors import REMOVAL_DELAY, removal_due_at
from payres.accounts.store.sessions import change_session
from payres.core.http.context import context_of
from payres.core.protocol.clock import MINUTE, is_due, lasts
from payres.core.protocol.errors import InvalidRequest, NotFound, WrongState
from payres.core.protocol.identifiers import base64url, hash_secret
from payres.core.protocol.urls import Urls, canonical, is_loopback
from payres.core.protocol.visible import visible_text
from payres.core.store import audit
from payres.core.store.work import Work
from payres.html.language import marked

if TYPE_CHECKING:
    from fido2.server import Fido2Server
    from fido2.webauthn import AttestedCredentialData, AuthenticationResponse, RegistrationResponse

T = TypeVar("T")
R = TypeVar("R", bound="RegistrationResponse | AuthenticationResponse")

LIFETIME: Final = 10 * MINUTE  # of a challenge
STEM: Final = 24  # bytes of a challenge before its digest: the time, and 16 that are random
ALGORITHMS: Final = (-7, -8, -257)  # ES256, Ed25519 and RS256 (IANA COSE algorithms)
TRANSPORTS: Final = frozenset({"ble", "hybrid", "internal", "nfc", "smart-card", "usb"})
LONGEST_ID: Final = 1023  # bytes of a credential id (WebAuthn section 4)
LONGEST_KEY: Final = 600  # bytes: RSA of 4096 bits has 540; longer ones take long to verify
LONGEST_NAME: Final = 60  # characters

ADD: Final = "add"

NO_ANSWER: Final = marked("Your browser sent no passkey: it runs no scripts here, or is too old for passkeys.")
REFUSED: Final = marked("This passkey was not taken, so nothing was done. Try again, or use your password.")
TOO_LATE: Final = marked("This page was open for too long, or has been used already. Nothing was done; try again.")
UNKNOWN: Final = marked("This passkey is not known here any more. Use your password.")
SUSPECT: Final = marked(
    "This passkey may have been copied, so it is taken no more. Use your password, remove the passkey, and add it"
    " again."
)
TAKEN: Final = marked("This device has a passkey here already.")
TOO_MANY: Final = marked("There are 20 passkeys already. Remove one first.")
NO_NAME: Final = marked("Give it a name by which you know the device.")


def relying_party(urls: Urls) -> str | None:
    """The name that passkeys are for: the host of the base URL. None where browsers take none: over http, except on
    `localhost`, and at IP addresses."""
    base = urlsplit(urls.canonical_base)
    host = base.hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host if base.scheme == "https" or is_loopback(host) else None
    return None


def takes_passkeys(request: Request) -> bool:
    """Whether a page can use passkeys: a browser may have opened it under another name of the server."""
    urls = context_of(request).urls
    opened = f"{urls.base.partition('://')[0]}://{request.headers.get('host', '')}"
    return canonical(opened) == urls.canonical_base and relying_party(urls) is not None


class PasskeySecret(msgspec.Struct, frozen=True):
    """The server's secret, which makes challenges and knows them again, and makes handles of accounts."""

    secret: bytes

    def challenge(self, kind: Kind, browser: str, purpose: str, now: int) -> bytes:
        """A challenge for the browser with this secret; `purpose` is what the answer is good for."""
        stem = now.to_bytes(STEM - 16, "big") + secrets.token_bytes(16)
        return stem + self._digest(kind.noun, browser, purpose, stem)

    def made_at(self, challenge: bytes, kind: Kind, browser: str, purpose: str, now: int) -> int:
        """When it was made for this browser and purpose. Raises InvalidRequest if it was not, or has expired."""
        stem = challenge[:STEM]
        made_at = int.from_bytes(stem[: STEM - 16], "big")
        is_own = hmac.compare_digest(challenge[STEM:], self._digest(kind.noun, browser, purpose, stem))
        if not is_own or not lasts(made_at + LIFETIME, now, LIFETIME):
            raise refused(TOO_LATE)
        return made_at

    def user_handle(self, kind: Kind, account_id: int) -> bytes:
        """What authenticators know the account by: a passkey with the handle of another would replace that one's."""
        return self._digest(kind.noun, "", f"handle {account_id}", b"")

    def _digest(self, *parts: str | bytes) -> bytes:
        return hmac.digest(self.secret, msgspec.json.encode(parts), "sha256")


class Passkeys(SecondStep):
    """They stand in for the password too. One that may have been copied is not taken, and so it is no second step."""

    name = "passkeys"
    ways: Mapping[str, str] = {"passkey": marked("Passkey")}
    choice, field, template = "passkey", "answer", "passkey.html"
    off = "passkey_removed"
    kept = ("passkey",)
    script = "passkey.js"
    alone = True

    def held(self, work: Work, kind: Kind, account_id: int) -> Held | None:
        count = count_passkeys(work, kind, account_id)
        return Held(count) if count else None

    def asked(self, request: Request, kind: Kind, browser: str, purpose: str) -> str | None:
        """PublicKeyCredentialRequestOptionsJSON: any passkey of this server, of a user whom the device has verified.
        None where passkeys cannot be used."""
        if not takes_passkeys(request):
            return None
        context = context_of(request)
        challenge = context.part(PasskeySecret).challenge(kind, browser, purpose, context.clock.now())
        party = relying_party(context.urls)
        options = {"challenge": base64url(challenge), "rpId": party, "userVerification": "required"}
        return msgspec.json.encode(options).decode()

    async def read(self, request: Request, kind: Kind, answer: str, browser: str, purpose: str) -> Take:
        database, secret = context_of(request).database, context_of(request).part(PasskeySecret)
        # The signature takes milliseconds, during which no payment shall wait.
        signed = await database.examine(lambda work: verify(work, kind, answer, secret, browser, purpose))

        def take(work: Work, of: Account | None) -> Account | Refused:
            used = use(work, kind, signed)
            account = kind.accounts.by_id(work, getattr(used, kind.column))
            if used.suspect_at:
                record(work, kind, account, "passkey_suspect", name=used.name, **seen_of(request)._asdict())
                return Refused(
                    self.field, SUSPECT, alarm=f"a passkey may have been copied, and is taken no more: {account.actor}"
                )
            if account.password_hash is None or (of is not None and of.id != account.id):
                raise refused(UNKNOWN)
            return account

        return take

    def remove(self, work: Work, kind: Kind, account: Account, named: str) -> dict[str, str]:
        found = own_passkey(work, kind, account.id, named)
        PASSKEY_TABLE.delete(work, id=found.id)
        return {"name": found.name}


PASSKEYS: Final = Passkeys()


def refused(sentence: str) -> InvalidRequest:
    """The error for a passkey that is not taken."""
    return InvalidRequest(sentence, field="passkey")


def accepted_of(
    request: Request, kind: Kind, account: Account, secret: PasskeySecret, own: Sequence[PasskeyRecord]
) -> str | None:
    """AllAcceptedCredentialsOptions: the passkeys of the account. None where passkeys cannot be used."""
    if not takes_passkeys(request):
        return None
    ids = [base64url(one.credential_id) for one in own]
    handle, party = secret.user_handle(kind, account.id), relying_party(context_of(request).urls)
    options = {"rpId": party, "userId": base64url(handle), "allAcceptedCredentialIds": ids}
    return msgspec.json.encode(options).decode()


def options_to_add(work: Work, kind: Kind, account: Account, secret: PasskeySecret, session: str, brand: str) -> str:
    """PublicKeyCredentialCreationOptionsJSON: a passkey for the account, on a device that has none of it.

    Raises WrongState if the account has too many.
    """
    own = passkeys_of(work, kind, account.id)
    if len(own) >= MAX_PASSKEYS:
        raise WrongState(TOO_MANY)
    known = [{"type": "public-key", "id": base64url(one.credential_id), "transports": one.transports} for one in own]
    handle, name = secret.user_handle(kind, account.id), f"{account.name} ({kind.noun})"
    options = {
        "rp": {"id": relying_party(work.urls), "name": brand},
        "user": {"id": base64url(handle), "name": name, "displayName": name},
        "challenge": base64url(secret.challenge(kind, session, ADD, work.now)),
        "pubKeyCredParams": [{"type": "public-key", "alg": one} for one in ALGORITHMS],
        "excludeCredentials": known,
        "authenticatorSelection": {
            "residentKey": "required",
            "requireResidentKey": True,
            "userVerification": "required",
        },
        "attestation": "none",
    }
    return msgspec.json.encode(options).decode()


def load_fido2() -> None:
    """Loads what reads the answers of authenticators, which takes too long in a unit that writes."""
    for name in ("server", "webauthn", "cose", "cbor"):
        import_module(f"fido2.{name}")


def add_passkey(
    work: Work, kind: Kind, account: Account, name: str, answer: str, secret: PasskeySecret, session: str
) -> Sequence[str]:
    """Adds the passkey that a browser has made for an account, with a challenge of this session, in which it counts as
    just given. Returns new recovery codes if the account has none.

    Raises InvalidRequest for an answer or a name that is not taken, WrongState if the account has too many.
    """
    from fido2.webauthn import RegistrationResponse

    name = _shown_name(name)
    if len(passkeys_of(work, kind, account.id)) >= MAX_PASSKEYS:
        raise WrongState(TOO_MANY)
    read = _read(RegistrationResponse, answer)
    challenge = read.response.client_data.challenge
    made_at = secret.made_at(challenge, kind, session, ADD, work.now)
    data = _checked(work.urls, read.response.client_data, lambda server, state: server.register_complete(state, read))
    credential = data.credential_data
    if credential is None:
        raise refused(REFUSED)
    if PASSKEY_TABLE.find(work, credential_id=credential.credential_id) is not None:
        raise refused(TAKEN)
    _use_challenge(work, challenge, made_at)
    given = msgspec.json.decode(answer)["response"].get("transports")
    passkey = PasskeyRecord(
        id=work.new_id(),
        user_handle=secret.user_handle(kind, account.id),
        credential_id=credential.credential_id,
        public_key=_usable_key(credential),
        sign_count=data.counter,
        is_backed_up=int(data.is_backed_up()),
        transports=[one for one in sorted(TRANSPORTS) if isinstance(given, list) and one in given],
        name=name,
        created_at=work.now,
    )
    PASSKEY_TABLE.insert(work, msgspec.structs.replace(passkey, **{kind.column: account.id}))
    codes = first_recovery_codes(work, kind, account)
    record(work, kind, account, "passkey_added", name=name, passkey=passkey.id, recovery=bool(codes))
    change_session(work, kind, hash_secret(session), verified_at=work.now)
    return codes


def rename_passkey(work: Work, kind: Kind, account: Account, passkey_id: str, name: str) -> None:
    """Raises InvalidRequest for a name that shows nothing, NotFound."""
    found, shown = own_passkey(work, kind, account.id, passkey_id), _shown_name(name)
    PASSKEY_TABLE.update(work, found.id, name=shown)
    audit.record(work, audit_action(kind, "rename_passkey"), account.name, before=found.name, name=shown)


def _shown_name(text: str) -> str:
    """The name of a passkey as it is shown. Raises InvalidRequest if nothing is."""
    name = visible_text(text).strip()[:LONGEST_NAME]
    if not name:
        raise InvalidRequest(NO_NAME, field="name")
    return name


def own_passkey(work: Work, kind: Kind, account_id: int, passkey_id: str) -> PasskeyRecord:
    """A passkey of the account. Raises NotFound."""
    found = PASSKEY_TABLE.get(work, passkey_id)
    if found is None or getattr(found, kind.column) != account_id:
        raise NotFound("There is no such passkey, or not any more")
    return found


class Signed(msgspec.Struct, frozen=True):
    """What a passkey has signed, verified."""

    passkey: PasskeyRecord
    challenge: bytes
    made_at: int
    sign_count: int
    is_backed_up: bool


def verify(work: Work, kind: Kind, answer: str, secret: PasskeySecret, browser: str, purpose: str) -> Signed:
    """What a passkey of this kind of account has signed. Raises InvalidRequest if it is not taken."""
    from fido2 import cbor
    from fido2.cose import CoseKey
    from fido2.webauthn import Aaguid, AttestedCredentialData, AuthenticationResponse

    read = _read(AuthenticationResponse, answer)
    challenge, data = read.response.client_data.challenge, read.response.authenticator_data
    made_at = secret.made_at(challenge, kind, browser, purpose, work.now)
    passkey = PASSKEY_TABLE.find(work, credential_id=read.raw_id)
    if passkey is None or getattr(passkey, kind.column) is None or read.response.user_handle != passkey.user_handle:
        raise refused(UNKNOWN)
    key = CoseKey.parse(cast(Mapping[int, object], cbor.decode(passkey.public_key)))
    credential = AttestedCredentialData.create(Aaguid.NONE, passkey.credential_id, key)
    _checked(
        work.urls,
        read.response.client_data,
        lambda server, state: server.authenticate_complete(state, [credential], read),
    )
    return Signed(passkey, challenge, made_at, data.counter, data.is_backed_up())


def use(work: Work, kind: Kind, signed: Signed) -> PasskeyRecord:
    """The passkey after it has signed. If its counter has not risen, there may be a copy: it is suspect then, for good,
    which a unit stores only if it does not raise.

    Raises InvalidRequest if it was removed, or is to be by now; if it is suspect; if this has been used before.
    """
    before = PASSKEY_TABLE.get(work, signed.passkey.id)
    due_at = removal_due_at(work, kind, getattr(signed.passkey, kind.column), work.now)
    if before is None or (due_at is not None and is_due(due_at, work.now, REMOVAL_DELAY)):
        raise refused(UNKNOWN)
    if before.suspect_at:
        raise refused(SUSPECT)
    _use_challenge(work, signed.challenge, signed.made_at)
    has_risen = signed.sign_count > before.sign_count or signed.sign_count == before.sign_count == 0
    if has_risen:
        changes = {"sign_count": signed.sign_count, "is_backed_up": int(signed.is_backed_up), "last_used_at": work.now}
    else:
        changes = {"suspect_at": work.now}
    PASSKEY_TABLE.update(work, before.id, **changes)
    return PASSKEY_TABLE.by_id(work, before.id)


def _use_challenge(work: Work, challenge: bytes, made_at: int) -> None:
    if not use_challenge(work, sha256(challenge).digest(), made_at + LIFETIME, work.now):
        raise refused(TOO_LATE)


def _read(kind: type[R], answer: str) -> R:
    """What a browser has sent, as fido2 has it."""
    if not answer:
        raise refused(NO_ANSWER)
    try:
        sent: Any = msgspec.json.decode(answer, type=dict)  # fido2 makes None of null
        read: R = kind.from_dict(sent)
    except Exception as error:  # fido2 raises many kinds for what is malformed, and RecursionError for what is deep
        raise refused(REFUSED) from error
    return read


def _checked(urls: Urls, client: Any, check: Callable[["Fido2Server", Any], T]) -> T:
    """What `check` returns. Raises InvalidRequest for what another page has asked for, and what is not verified."""
    from fido2.server import Fido2Server
    from fido2.webauthn import PublicKeyCredentialRpEntity

    party = PublicKeyCredentialRpEntity(id=relying_party(urls), name="")
    server = Fido2Server(party, verify_origin=lambda origin: origin == urls.canonical_base)
    state = {"challenge": base64url(client.challenge), "user_verification": "required"}
    try:
        if client.cross_origin:
            raise refused(REFUSED)
        return check(server, state)
    except Exception as error:
        raise refused(REFUSED) from error


def _usable_key(credential: "AttestedCredentialData") -> bytes:
    """The key as it is stored. Raises InvalidRequest if it can verify nothing, or takes long to."""
    from cryptography.exceptions import InvalidSignature
    from fido2 import cbor

    key, length = cbor.encode(credential.public_key), len(credential.credential_id)
    try:
        credential.public_key.verify(b"", b"")
    except InvalidSignature:
        if credential.public_key.ALGORITHM in ALGORITHMS and len(key) <= LONGEST_KEY and 0 < length <= LONGEST_ID:
            return key
    except Exception as error:
        raise refused(REFUSED) from error
    raise refused(REFUSED)
