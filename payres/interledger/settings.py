"""The settings of the Interledger node."""

from functools import partial
from typing import Annotated, Final

import msgspec

from payres.core.process.settings import NonEmpty, RateLimit, checked_link
from payres.core.protocol.limits import DEFAULT_RATE_PER_PEER
from payres.interledger.ilp_addresses import is_ilp_address

# Payments' addresses begin with it, and are longer.
MAX_OWN_ILP_ADDRESS: Final = 800


def _ilp_address(address: str) -> str:
    if len(address) > MAX_OWN_ILP_ADDRESS or not is_ilp_address(address):
        raise ValueError("is not an ILP address such as test.payres")
    return address


class InterledgerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`rates_max_age` is seconds."""

    ilp_address: Annotated[NonEmpty, _ilp_address] = "test.payres"
    rate_limit_per_peer: RateLimit = DEFAULT_RATE_PER_PEER
    rates_url: Annotated[str, partial(checked_link, may_have_fragment=False)] = ""
    rates_max_age: Annotated[int, msgspec.Meta(ge=10, le=86400)] = 300
