"""Recovery codes: ten that are shown once, and are good once each in place of another second step."""

import base64
import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from payres.accounts.limits import RECOVERY_CODES
from payres.accounts.second_step import Held, Refused, TypedStep, audit_action, record
from payres.accounts.store import codes as store
from payres.accounts.store.kinds import Account, Kind
from payres.accounts.totp import CODES, WRONG_CODE, forgive, plain
from payres.core.protocol.identifiers import hash_secret
from payres.core.store import audit
from payres.core.store.work import Work
from payres.html.language import marked

RECOVERY_BYTES: Final = 10


class RecoveryCodes(TypedStep):
    """They are typed where a code is, and take the count of wrong ones back."""

    name = "recovery codes"
    ways: Mapping[str, str] = {"recovery code": marked("Recovery code")}
    choice, field, template = CODES.choice, CODES.field, CODES.template
    off = "recovery_codes"  # of which nobody is notified: they go with the last factor
    kept = ("recovery_code",)
    heading = marked("Confirm that it is you")
    stands_in = True

    def held(self, work: Work, kind: Kind, account_id: int) -> Held | None:
        count = store.count_recovery_codes(work, kind, account_id)
        return Held(count) if count else None

    def verify(self, work: Work, kind: Kind, account_id: int, typed: str) -> Refused | None:
        if not store.use_recovery_code(work, kind, account_id, _hash_of(plain(typed)), work.now):
            return WRONG_CODE
        forgive(work, kind, account_id)
        return None


RECOVERY: Final = RecoveryCodes()


def make_recovery_codes(work: Work, kind: Kind, account: Account) -> Sequence[str]:
    """New recovery codes of an account, which end all earlier ones."""
    record(work, kind, account, "recovery_codes", old=RECOVERY.held(work, kind, account.id) is not None)
    return _replace(work, kind, account)


def first_recovery_codes(work: Work, kind: Kind, account: Account) -> Sequence[str]:
    """New recovery codes for who has just turned on a second factor, which is told with it; none if some of earlier
    ones are left."""
    if RECOVERY.held(work, kind, account.id):
        return []
    audit.record(work, audit_action(kind, "recovery_codes"), account.name)
    return _replace(work, kind, account)


def _replace(work: Work, kind: Kind, account: Account) -> Sequence[str]:
    texts = [base64.b32encode(os.urandom(RECOVERY_BYTES)).decode().lower() for _ in range(RECOVERY_CODES)]
    store.replace_recovery_codes(work, kind, account.id, [_hash_of(text) for text in texts], work.now)
    return ["-".join(re.findall("....", text)) for text in texts]


def _hash_of(text: str) -> bytes:
    """Of a code as it was typed: figures that are none of the alphabet stand for the letters that look like them."""
    return hash_secret(text.translate(str.maketrans("018", "olb")))
