"""The services for the pages of owners and payers."""

import msgspec
from msgspec import field

from payres.accounts.guesses import SignInGuard
from payres.core.http.context import Context
from payres.core.process.rate_limiter import RateLimiter
from payres.core.process.slots import Slots
from payres.people.limits import MAX_EXPORTS_OF_OWNER, MAX_EXPORTS_OF_OWNERS
from payres.people.remote_bills import RemoteBills


class PeopleServices(msgspec.Struct, frozen=True):
    """The services for the pages of owners and payers."""

    sign_in: SignInGuard
    remote_bills: RemoteBills
    # Whatever an owner's form writes, it counts here.
    forms: RateLimiter
    # Payments that an address begins with wallets on other servers, for each of which several requests are sent there.
    checkouts: RateLimiter
    # For statements in progress, per owner: operators' exports have slots of their own.
    export_slots: Slots = field(default_factory=lambda: Slots(MAX_EXPORTS_OF_OWNERS, MAX_EXPORTS_OF_OWNER))
    # One slot per payment from another wallet while a request for it is sent to the payer's server.
    checkout_slots: Slots = field(default_factory=lambda: Slots(None, 1))


def people_of(context: Context) -> PeopleServices:
    """The services of a running server."""
    return context.part(PeopleServices)
