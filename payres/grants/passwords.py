"""Passwords of wallet owners and operators, stored as Argon2id hashes (RFC 9106)."""

import unicodedata

from payres.errors import InvalidRequest
from payres.limits import MAX_PASSWORD_LENGTH, MIN_PASSWORD_LENGTH
from payres.store.operators import OperatorRecord
from payres.store.wallets import WalletRecord

Account = WalletRecord | OperatorRecord  # what has a password


def hash_password(password: str) -> str:
    """The text to store for a password: parameters, salt and hash. Raises InvalidRequest."""
    from argon2 import PasswordHasher  # loading it takes longer than most commands run

    encoded = _encoded(password)
    if encoded is None or len(encoded.decode()) < MIN_PASSWORD_LENGTH or len(password) > MAX_PASSWORD_LENGTH:
        sentence = f"A password has {MIN_PASSWORD_LENGTH} to {MAX_PASSWORD_LENGTH} characters of Unicode"
        raise InvalidRequest(sentence, field="password")
    return PasswordHasher().hash(encoded)


def verify_password(account: Account | None, password: str) -> bool:
    """Whether this is the password of the account.

    It takes as long for an account that does not exist or has no password, so that the time reveals nothing.
    """
    from argon2 import PasswordHasher
    from argon2.exceptions import VerifyMismatchError

    hasher = PasswordHasher()
    attempt = _encoded(password[: MAX_PASSWORD_LENGTH + 1])
    stored = account.password_hash if account else None
    if stored is None or attempt is None:
        hasher.hash(attempt or b"")
        return False
    try:
        return hasher.verify(stored, attempt)
    except VerifyMismatchError:
        return False


def _encoded(password: str) -> bytes | None:
    """The password in NFC, so that different keyboards give the same text (RFC 8265 section 4.2); None if not
    Unicode."""
    try:
        return unicodedata.normalize("NFC", password).encode()
    except UnicodeEncodeError:
        return None
