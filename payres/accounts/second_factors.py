"""Second factors: codes of an app (TOTP, RFC 6238) and recovery codes, and for how long one that was given counts.

A secret and recovery codes are shown once. Codes are good once each, in the order of time.
"""

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote, urlencode

from msgspec.structs import replace

from payres.accounts.limits import RECOVERY_CODES
from payres.accounts.notices import notify
from payres.accounts.store import second_factors as store
from payres.accounts.store.second_factors import TOTP, TotpRecord
from payres.accounts.store.sessions import OF_OWNERS, Kind
from payres.core.protocol.clock import DAY, MINUTE, SECOND, is_due, lasts
from payres.core.protocol.errors import WrongState
from payres.core.protocol.identifiers import hash_secret
from payres.core.store import audit, server_secrets
from payres.core.store.work import Work

STEP: Final = 30 * SECOND
DIGITS: Final = 6
SECRET_BYTES: Final = 20
MAX_WRONG_CODES: Final = 10  # in a row; then only a passkey or a recovery code helps
RECOVERY_BYTES: Final = 10
SET_UP: Final = 10 * MINUTE  # in which a new secret is to be confirmed: whoever has the session then can do so
FRESH: Final = 5 * MINUTE  # for which a second factor counts
REMOVAL_DELAY: Final = DAY  # in which the owner can say no
ENCRYPTED: Final = "second_factors"  # the secret that secrets of apps are encrypted with
Way = Literal["password and code", "recovery code"]
Refused = Literal["wrong code", "used code"]


class Factors(NamedTuple):
    """The second factors of an account. With `refused`, so many codes in a row were wrong that none is taken; `due_at`
    is when an operator removes all of them."""

    codes_since: int | None
    tries_left: int
    recovery_codes: int
    passkeys: int
    due_at: int | None

    @property
    def has_any(self) -> bool:
        return self.codes_since is not None or self.passkeys > 0

    @property
    def refused(self) -> bool:
        return self.tries_left == 0


def factors_of(work: Work, kind: Kind, account_id: int) -> Factors:
    totp = store.find_totp(work, kind, account_id)
    return Factors(
        totp.confirmed_at if totp else None,
        MAX_WRONG_CODES - totp.wrong if totp else MAX_WRONG_CODES,
        store.count_recovery_codes(work, kind, account_id),
        store.count_passkeys(work, kind, account_id),
        removal_due_at(work, kind, account_id),
    )


def removal_due_at(work: Work, kind: Kind, account_id: int) -> int | None:
    """When the account's second factors are removed, in a day at the latest; None unless an operator wants that."""
    return store.removal_due_at(work, kind, account_id, work.now + REMOVAL_DELAY)


def has_factor(work: Work, kind: Kind, account_id: int) -> bool:
    """Whether the account has a second factor."""
    return _codes_of(work, kind, account_id) is not None or store.count_passkeys(work, kind, account_id) > 0


def is_fresh(verified_at: int | None, now: int) -> bool:
    """Whether a second factor that was given then still counts."""
    return verified_at is not None and lasts(verified_at + FRESH, now, FRESH)


def verify(work: Work, kind: Kind, account_id: int, typed: str) -> Way | None:
    """With what this code signs in; None if it is not taken. A wrong one is counted, so a unit that calls this must
    return, and not raise; one that was used a moment ago is not.

    A recovery code takes the count back.
    """
    text, totp, step = _plain(typed), _codes_of(work, kind, account_id), work.now // STEP
    if totp is not None and totp.last_step > step + 1:  # the clock was ahead: codes are good again in a minute
        totp = replace(totp, last_step=step + 1)
        TOTP.update(work, totp.id, last_step=totp.last_step)
    if store.use_recovery_code(work, kind, account_id, _recovery_hash(text), work.now):
        if totp is not None:
            TOTP.update(work, totp.id, wrong=0)
        return "recovery code"
    if totp is None:
        return None
    found = None if totp.wrong >= MAX_WRONG_CODES else _step_of(work, totp, text)
    if found is None:
        TOTP.update(work, totp.id, wrong=min(totp.wrong + 1, MAX_WRONG_CODES))
    if found is None or found <= totp.last_step:
        return None
    TOTP.update(work, totp.id, wrong=0, last_step=found)
    return "password and code"


def why_refused(work: Work, kind: Kind, account_id: int, typed: str) -> Refused:
    """Why `verify` has not taken this code: one that was used, or the one before it, is not wrong."""
    totp = _codes_of(work, kind, account_id)
    step = _step_of(work, totp, _plain(typed)) if totp else None
    return "used code" if totp and step is not None and step <= totp.last_step else "wrong code"


def _plain(typed: str) -> str:
    return re.sub(r"[\s-]", "", typed).lower()


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


def confirm_codes(work: Work, kind: Kind, account: Any, typed: str) -> bool:
    """Turns codes on with one of them; whether it was right. Raises WrongState if none wait to be confirmed."""
    totp = _waiting(work, kind, account.id)
    if totp is None:
        raise WrongState("No codes wait to be confirmed: open the page again")
    step = _step_of(work, totp, re.sub(r"\s", "", typed))
    if step is None:
        return False
    TOTP.update(work, totp.id, confirmed_at=work.now, last_step=step)
    record(work, kind, account, "codes_on")
    return True


def turn_codes_off(work: Work, kind: Kind, account: Any) -> None:
    """Removes the codes; recovery codes go with the last factor."""
    store.delete_totp(work, kind, account.id)
    end_after_last(work, kind, account)
    record(work, kind, account, "codes_off")


def end_after_last(work: Work, kind: Kind, account: Any) -> None:
    """Removes what stands in for a second factor, and what waits for one, if the last was removed."""
    if not has_factor(work, kind, account.id):
        store.delete_factors(work, kind, account.id)


def first_recovery_codes(work: Work, kind: Kind, account: Any) -> Sequence[str]:
    """New recovery codes for who has just turned on a second factor; none if some of earlier ones are left."""
    has_some = factors_of(work, kind, account.id).recovery_codes
    return [] if has_some else new_recovery_codes(work, kind, account)


def new_recovery_codes(work: Work, kind: Kind, account: Any) -> Sequence[str]:
    """New recovery codes, which end all earlier ones. Raises WrongState without a second factor."""
    if not has_factor(work, kind, account.id):
        raise WrongState("Recovery codes stand in for a second step, and there is none: turn on codes first")
    texts = [base64.b32encode(os.urandom(RECOVERY_BYTES)).decode().lower() for _ in range(RECOVERY_CODES)]
    store.replace_recovery_codes(work, kind, account.id, [_recovery_hash(text) for text in texts], work.now)
    record(work, kind, account, "recovery_codes")
    return ["-".join(re.findall("....", text)) for text in texts]


def link_of_secret(secret: str, host: str, name: str) -> str:
    """What an app reads from the QR code."""
    label = quote(f"{host}:{name}", safe=":")
    return f"otpauth://totp/{label}?{urlencode({'secret': secret, 'issuer': host})}"


def ask_removal(work: Work, kind: Kind, account: Any) -> int:
    """Lets the account's second factors be removed in a day, or at the time asked for before; returns when.

    Raises WrongState if there is none.
    """
    if not has_factor(work, kind, account.id):
        raise WrongState(f"{account.name} has no second factor to remove")
    due_at = removal_due_at(work, kind, account.id)
    if due_at is None:
        due_at = work.now + REMOVAL_DELAY
        store.insert_removal(work, kind, account.id, work.now, due_at)
        record(work, kind, account, "remove_factors", due_at=due_at)
    return due_at


def cancel_removal(work: Work, kind: Kind, account: Any) -> None:
    """Keeps the second factors. Raises WrongState if nobody wants to remove them."""
    if removal_due_at(work, kind, account.id) is None:
        raise WrongState(f"Nobody wants to remove the second factors of {account.name}")
    store.delete_removal(work, kind, account.id)
    record(work, kind, account, "keep_factors")


def remove_if_due(work: Work, kind: Kind, account: Any) -> None:
    """Removes the second factors, if an operator wanted that a day ago. If the clock was ahead then, the day begins
    now: the owner has had none to say no."""
    due_at = removal_due_at(work, kind, account.id)
    if due_at is not None and is_due(due_at, work.now, REMOVAL_DELAY):
        remove_factors(work, kind, account)
    elif due_at is not None:
        store.limit_removal(work, kind, account.id, due_at)


def remove_factors(work: Work, kind: Kind, account: Any) -> None:
    """Removes all second factors at once."""
    if has_factor(work, kind, account.id):
        record(work, kind, account, "factors_removed")
    store.delete_factors(work, kind, account.id)


def record(work: Work, kind: Kind, account: Any, what: str, **data: Any) -> None:
    """Notes in the audit log what happened to the second factors of an account, and tells an owner, with the data."""
    audit.record(work, audit_action(kind, what), account.name)
    if kind is OF_OWNERS:
        notify(work, account.id, what, **data)


def audit_action(kind: Kind, what: str) -> str:
    """What happened to an account, as the audit log calls it: its first word is that of the commands."""
    return f"{kind.link_command.split()[1]}.{what}"


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


def _recovery_hash(text: str) -> bytes:
    """Of a code as it was typed: figures that are none of the alphabet stand for the letters that look like them."""
    return hash_secret(text.translate(str.maketrans("018", "olb")))
