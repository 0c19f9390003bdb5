"""Limits of what owners and payers do."""

from typing import Final

# Owners and payers.

# Forms that an owner sends in an hour, half of them at once; further ones are answered 429, except those that only take
# access away or pause something.
MAX_FORMS_OF_OWNER: Final = 240
MAX_EXPORTS_OF_OWNERS: Final = 16  # Concurrent statements of owners, besides those of operators.
MAX_EXPORTS_OF_OWNER: Final = 2  # The same per owner.
OWNER_EXPORT_SECONDS: Final = 300  # Seconds in which an owner's statement must be read.
MAX_ORDERS_OF_WALLET: Final = 50  # Standing orders of a wallet that go on.
# Payments with wallets on other servers that one address starts in a second on payment pages.
CHECKOUT_RATE: Final = 1
# Payments from wallets on other servers whose next step is taken at once; others wait for one of them.
MAX_CHECKOUTS: Final = 32
MAX_CHECKOUTS_OF_SERVER: Final = 4  # The same to one server: payers of a slow one do not delay those of others.
