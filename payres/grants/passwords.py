"""Passwords that wallet owners sign in with for consent: stored as Argon2id hashes (RFC 9106), never as they are."""

import unicodedata

from payres.errors import InvalidRequest
from payres.limits import MAX_PASSWORD_LENGTH, MIN_PASSWORD_LENGTH
from payres.store.wallets import WalletRecord


def hash_password(password: str) -> str:
    """What is stored of a password: parameters, salt and hash in one text. Raises InvalidRequest."""
    from argon2 import PasswordHasher  # not above: loading it costs more than most commands take altogether

    encoded = _encoded(password)
    if encoded is None or len(encoded.decode()) < MIN_PASSWORD_LENGTH or len(password) > MAX_PASSWORD_LENGTH:
        sentence = f"A password has {MIN_PASSWORD_LENGTH} to {MAX_PASSWORD_LENGTH} characters of Unicode"
        raise InvalidRequest(sentence, field="password")
    return PasswordHasher().hash(encoded)


def verify_password(wallet: WalletRecord | None, password: str) -> bool:
    """Whether this is the password of the wallet's owner.

    Takes as long for a wallet that does not exist or has no password, so that the time reveals nothing.
    """
    from argon2 import PasswordHasher
    from argon2.exceptions import VerifyMismatchError

    hasher = PasswordHasher()
    attempt = _encoded(password[: MAX_PASSWORD_LENGTH + 1])
    stored = wallet.password_hash if wallet else None
    if stored is None or attempt is None:
        hasher.hash(attempt or b"")
        return False
    try:
        return hasher.verify(stored, attempt)
    except VerifyMismatchError:
        return False


def _encoded(password: str) -> bytes | None:
    """One spelling of the same text from different keyboards (NFC, as in RFC 8265 section 4.2); None for no Unicode."""
    try:
        return unicodedata.normalize("NFC", password).encode()
    except UnicodeEncodeError:
        return None
