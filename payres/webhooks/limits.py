"""Limits of webhooks."""

from typing import Final

# Webhooks.

MAX_WEBHOOKS: Final = 16  # Registered endpoints.
MAX_WEBHOOKS_OF_WALLET: Final = 5  # The same of one wallet, which its owner adds.
MAX_DELIVERIES_OF_WEBHOOK: Final = 4  # Events in flight to one endpoint; endpoints never wait for each other.
# Events that wait for one endpoint by turns of their wallets; further ones wait until there are fewer.
MAX_EVENTS_IN_TURNS: Final = 100_000
DELIVERY_SECONDS: Final = 15  # Seconds in which an endpoint must answer.
MAX_KEPT_ATTEMPTS: Final = 20  # Attempts to send events to an endpoint that are kept, the latest ones.
MAX_KEPT_ANSWER_BYTES: Final = 500  # The beginning of the endpoint's answer, which is kept with an attempt.
MAX_RETRY_AFTER_SECONDS: Final = 24 * 3600  # Seconds by which an endpoint's `Retry-After` can delay the next attempt.
ROTATION_HOURS: Final = 24  # Hours for which the previous secret also signs after a rotation.
