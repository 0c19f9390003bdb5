"""Defaults of test servers: settings, wallets, and short timeouts."""

import msgspec

from payres.core.http.context import Context
from payres.core.process.settings import Settings
from payres.core.protocol.clock import MILLISECOND, SECOND
from payres.interledger.node import node_of
from payres.interledger.remote_payments import Backoff

# Tests send many requests from one address, so rate limits are off.
RATE_LIMITS = [name for name in Settings.__struct_fields__ if name.startswith("rate_limit_")]
SETTINGS = {"continue_wait": 0, "allow_private_hosts": True, **dict.fromkeys(RATE_LIMITS, 0)}
WALLETS = {"alice": "Alice", "bob": "Bob"}
BALANCE = "1000.00"
CLIENT = "shop"
CLIENT_NAME = "Example Shop"


def shorten_timeouts(context: Context) -> None:
    """Shortens timeouts, so that payments to other servers fail within two seconds, and the pauses between packets."""
    payments = node_of(context).payments
    payments.backoff = Backoff(after_failure=0.02, after_fault=0.02)
    payments.outbound.timing = msgspec.structs.replace(
        payments.outbound.timing,
        idle_timeout=SECOND,
        close_timeout=SECOND,
        first_pause=MILLISECOND,
        interval=MILLISECOND,
    )
