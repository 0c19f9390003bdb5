"""Codes of an app as a second step (TOTP, RFC 6238). They are good once each, in the order of time."""

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

from msgspec.structs import replace

from payres.accounts.second_step import Held, Refused, TypedStep, record
from payres.accounts.store import codes as store
from payres.accounts.store.codes import TOTP, TotpRecord
from payres.accounts.store.kinds import Account, Kind
from payres.core.protocol.clock import MINUTE, SECOND, lasts
from payres.core.protocol.errors import WrongState
from payres.core.store import server_secrets
from payres.core.store.work import Work
from payres.html.language import marked

STEP: Final = 30 * SECOND
DIGITS: Final = 6
SECRET_BYTES: Final = 20
MAX_WRONG_CODES: Final = 10  # in a row; then only a passkey or a recovery code helps
SET_UP: Final = 10 * MINUTE  # in which a new secret is to be confirmed: whoever has the session then can do so
ENCRYPTED: Final = "second_factors"  # the secret that secrets of apps are encrypted with
WRONG_CODE: Final = Refused(
    "code",
    marked("This code is not right, or no longer. Type the one shown now."),
    "This code is not right, or no longer: type the one shown now, or a recovery code",
    "wrong code",
)
# Of a code that was used, or of the one before it: no guess.
USED_CODE: Final = Refused(
    "code",
    marked("This code was used a moment ago, and each is good once. Wait for the next one, and type that."),
    "This code was used a moment ago, and each is good once: wait for the next one, and type that",
)


class Codes(TypedStep):
    """An account has one secret at most, in an app."""

    name = "codes"
    ways: Mapping[str, str] = {"password and code": marked("Password and code"), "wrong code": marked("Wrong code")}
    choice = field = "code"
    template = "code.html"
    off = "codes_off"
    kept = ("totp",)
    heading = marked("Enter the code")
    lead = marked("The password is right. Now the six digits that your app shows for {name}.")
    lead_again = marked("This needs your second step again: the six digits that your app shows for {name}.")

    def held(self, work: Work, kind: Kind, account_id: int) -> Held | None:
        totp = _codes_of(work, kind, account_id)
        return Held(1, totp.confirmed_at, MAX_WRONG_CODES - totp.wrong) if totp else None

    def verify(self, work: Work, kind: Kind, account_id: int, typed: str) -> Refused | None:
        totp, now = _codes_of(work, kind, account_id), work.now // STEP
        if totp is None:
            return WRONG_CODE
        if totp.last_step > now + 1:  # the clock was ahead: codes are good again in a minute
            totp = replace(totp, last_step=now + 1)
            TOTP.update(work, totp.id, last_step=totp.last_step)
        step = _step_of(work, totp, plain(typed))
        if step is None or totp.wrong >= MAX_WRONG_CODES:
            TOTP.update(work, totp.id, wrong=min(totp.wrong + 1, MAX_WRONG_CODES))
        if step is None or step <= totp.last_step or totp.wrong >= MAX_WRONG_CODES:
            return USED_CODE if step is not None and step <= totp.last_step else WRONG_CODE
        TOTP.update(work, totp.id, wrong=0, last_step=step)
        return None


CODES: Final = Codes()


def plain(typed: str) -> str:
    """A code as it was typed, without what parts it."""
    return re.sub(r"[\s-]", "", typed).lower()


def forgive(work: Work, kind: Kind, account_id: int) -> None:
    """Takes the count of wrong codes back."""
    totp = _codes_of(work, kind, account_id)
    if totp is not None:
        TOTP.update(work, totp.id, wrong=0)


def code_at(secret: bytes, step: int, digits: int = DIGITS) -> str:
    """The code of a step (RFC 4226 section 5.3)."""
    mac = hmac.digest(secret, step.to_bytes(8, "big"), hashlib.sha1)
    number = int.from_bytes(mac[mac[-1] & 15 :][:4], "big") & 0x7FFFFFFF
    return str(number % 10**digits).zfill(digits)


def begin_codes(work: Work, kind: Kind, account_id: int) -> None:
    """Makes a new secret for codes, which count once one was confirmed. Raises WrongState if they count already."""
    if _codes_of(work, kind, account_id) is not None:
        raise WrongState("Codes are on already: turn them off first")
    secret = base64.b32encode(os.urandom(SECRET_BYTES)).decode()
    store.replace_totp(work, kind, account_id, server_secrets.encrypt(work, ENCRYPTED, secret), work.now)


def unconfirmed_secret(work: Work, kind: Kind, account_id: int) -> str | None:
    """The secret, in base32, that an app is to have; None unless codes wait to be confirmed."""
    totp = _waiting(work, kind, account_id)
    return None if totp is None else _secret_of(work, totp)


def confirm_codes(work: Work, kind: Kind, account: Account, typed: str) -> bool:
    """Turns codes on with one of them; whether it was right. Raises WrongState if none wait to be confirmed."""
    totp = _waiting(work, kind, account.id)
    if totp is None:
        raise WrongState("No codes wait to be confirmed: open the page again")
    step = _step_of(work, totp, re.sub(r"\s", "", typed))
    if step is None:
        return False
    TOTP.update(work, totp.id, confirmed_at=work.now, last_step=step)
    is_first = not store.count_recovery_codes(work, kind, account.id)  # they are made now
    record(work, kind, account, "codes_on", recovery=is_first)
    return True


def link_of_secret(secret: str, host: str, name: str) -> str:
    """What an app reads from the QR code."""
    label = quote(f"{host}:{name}", safe=":")
    return f"otpauth://totp/{label}?{urlencode({'secret': secret, 'issuer': host})}"


def _codes_of(work: Work, kind: Kind, account_id: int) -> TotpRecord | None:
    """The codes that count."""
    totp = store.find_totp(work, kind, account_id)
    return totp if totp is not None and totp.confirmed_at is not None else None


def _waiting(work: Work, kind: Kind, account_id: int) -> TotpRecord | None:
    """The codes that wait to be confirmed, for a while: the password that was given for them does not last."""
    totp = store.find_totp(work, kind, account_id)
    waits = totp is not None and totp.confirmed_at is None and lasts(totp.created_at + SET_UP, work.now, SET_UP)
    return totp if waits else None


def _step_of(work: Work, totp: TotpRecord, text: str) -> int | None:
    """The step of a code, if it is the present one or one beside it."""
    now, typed = work.now // STEP, text.encode("utf-8", "replace")
    secret = base64.b32decode(_secret_of(work, totp))
    steps = (now + 1, now, now - 1)
    return next((step for step in steps if hmac.compare_digest(code_at(secret, step).encode(), typed)), None)


def _secret_of(work: Work, totp: TotpRecord) -> str:
    return server_secrets.decrypt(work, ENCRYPTED, totp.secret)
