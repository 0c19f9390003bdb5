"""The rows of outgoing payments. Interledger, owners and operators ask for them by statements of their own stores."""

import msgspec

from payres.core.protocol.amounts import Terms
from payres.core.store.rows import Table
from payres.core.store.terms import TERMS


class OutgoingRecord(msgspec.Struct, frozen=True):
    """A row of `outgoing_payment`; `sent` is in the sender's asset, `delivered` in the receiver's.

    `received_before` is what the receiver had received when the payment began, minus what the payment had delivered by
    then; None until it begins. `estimated` is the part of `delivered` that is a guess: of packets whose fulfillment was
    fetched later, until it is compared with the receiver. The unresolved amounts, in the assets of `sent` and
    `delivered`, are of packets without a provable outcome, which were returned to the payer. `overlapped` is 1 if
    another payment of ours to its remote receiver has ended since this one was created.
    """

    id: str
    wallet_address_id: int
    client_id: int
    grant_id: str | None
    window_start: int
    quote_id: str | None
    terms: Terms
    sent: int
    delivered: int
    state: str
    failure: str | None
    metadata: str | None
    created_at: int
    ended_at: int | None
    attempts: int = 0
    received_before: int | None = None
    unresolved_debit: int = 0
    unresolved_receive: int = 0
    estimated: int = 0
    overlapped: int = 0

    @property
    def has_begun(self) -> bool:
        """Whether its remote receiver may have got something."""
        return self.received_before is not None or self.sent > 0

    @property
    def spent_debit(self) -> int:
        """What an ended payment counts against its grant's debit limit: sent and possibly sent."""
        return self.sent + self.unresolved_debit

    @property
    def spent_receive(self) -> int:
        """The same for its receive limit: delivered and possibly delivered, at most the quoted amount."""
        return min(self.delivered + self.unresolved_receive, self.terms.receive)

    @property
    def failed(self) -> bool:
        return self.state == "failed"


OUTGOING = Table(OutgoingRecord, "outgoing_payment", terms=TERMS)
