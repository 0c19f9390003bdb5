"""Limits of signing in, and of what owners and operators have for it."""

from typing import Final

# Passwords, in any 15 minutes.

# Wrong passwords for a wallet or an operator from one address, or from a known browser.
MAX_WRONG_PASSWORDS: Final = 5
# Wrong passwords for a wallet or an operator from all addresses, except from known browsers.
MAX_WRONG_PASSWORDS_PER_WALLET: Final = 20
# Wrong passwords from one address for all wallets, and separately for all operators.
MAX_WRONG_PASSWORDS_PER_ADDRESS: Final = 20
# Passwords checked or set at once, and one more of an operator who signs in: each takes 64 MiB, and a core for tens of
# milliseconds.
PASSWORDS_AT_ONCE: Final = 2
# Waiting passwords from known browsers, as many from others, and as many new ones; half of that of one wallet,
# operator or API key. Further ones are answered 503.
PASSWORDS_WAITING: Final = 32

# What an owner or an operator has.

# Minimum characters of a new password; older, shorter ones remain valid.
MIN_PASSWORD_LENGTH: Final = 8
MAX_PASSWORD_LENGTH: Final = 1024  # Characters of a password.
MAX_SESSIONS: Final = 32  # Sessions of a wallet's owner or an operator; beyond it that unused for longest ends.
KNOWN_BROWSER_DAYS: Final = 365  # Days for which a browser stays known after a sign-in.
# Known browsers of a wallet or an operator; beyond it the least recently used is dropped.
MAX_KNOWN_BROWSERS: Final = 32
MAX_PASSKEYS: Final = 20  # Passkeys of an owner or an operator.
RECOVERY_CODES: Final = 10  # Recovery codes of an owner or an operator, who gets them all at once.
# Sign-ins of an owner or an operator that are kept, and as many that failed, the latest ones.
MAX_KEPT_SIGN_INS: Final = 20
MAX_MAILS_ASKED_FOR: Final = 5  # Mails of a kind, codes or tests, that an owner asks for within an hour.
# Mails of a kind to an owner in an hour: all but the last at once, and what follows together in that, after an hour.
MAX_NOTICES_OF_KIND: Final = 4
