"""Which events a webhook gets."""

from typing import Final

from payres.core.store.events import EventRecord
from payres.webhooks.store.webhooks import WebhookRecord

ALL: Final = "*"
TEST: Final = "webhook.test"  # sent only to its webhook, on creation
# What the webhook of a wallet gets. Other events of a wallet, such as an unresolved packet, are the operator's.
OF_WALLETS: Final = ("incoming_payment.*", "outgoing_payment.*", "grant.*", "refund.*", "wallet.*")


def wants(webhook: WebhookRecord, name: str) -> bool:
    """Whether the webhook gets events of this type. Tests go only to the tested webhook."""
    patterns = webhook.events.split(",")
    if webhook.wallet_address_id is not None and not any(matches(pattern, name) for pattern in OF_WALLETS):
        return False
    return name != TEST and any(matches(pattern, name) for pattern in patterns)


def concerns(webhook: WebhookRecord, event: EventRecord) -> bool:
    """Whether the webhook may get this event: that of a wallet gets no other's, and none that is the operator's."""
    return webhook.wallet_address_id is None or (
        webhook.wallet_address_id == event.wallet_address_id and wants(webhook, event.type)
    )


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern such as `incoming_payment.*` matches the type of an event."""
    return name.startswith(pattern[:-1]) if pattern.endswith(ALL) else name == pattern
