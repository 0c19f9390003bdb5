"""Limits of packets, and of payments to other servers."""

from typing import Final

# Interledger.

MAX_PACKET_BODY_BYTES: Final = 65536  # Bytes of a body at /ilp; the longest Prepare has 34 kB.
MAX_PACKETS_IN_FLIGHT: Final = 256  # Packets of one peer in flight; further ones are rejected with T03.
# Forwarded packets in flight to one peer, besides our own; further ones wait for 2 s and are rejected with T03.
MAX_PASSED_ON: Final = 64
MAX_PASSED_ON_OF_PEER: Final = 32  # The same from one peer: half, which is more than a payres lets one wallet send.
# Payments that send packets to receivers on other servers at once; others wait for one of them.
MAX_SENDING_PAYMENTS: Final = 64
MAX_SENDING_PAYMENTS_OF_WALLET: Final = 16  # The same from one wallet: slow receivers do not delay other wallets.
MAX_SENT: Final = 64  # Own packets of payments in flight to one peer; others wait.
MAX_SENT_OF_WALLET: Final = 24  # The same from one wallet: twenty for a payment, and room for another.
# Packets without money in flight to one peer, for quotes and for closing connections; others wait. A quote sends one at
# a time.
MAX_PROBES: Final = 96
MAX_PROBES_OF_CLIENT: Final = 8  # The same per client, or for all unknown clients of one address.
MAX_PROBES_OF_KEY: Final = 4  # The same per client known only by its key.
# Own money packets in flight to a peer that does not repeat answers: its restart leaves these unanswered.
MAX_UNREPEATED: Final = 16
MAX_UNREPEATED_OF_WALLET: Final = 8  # The same from one wallet.
# One part in this many may arrive beyond the incomingAmount (0.5 %), or one unit if that is more.
OVERPAY_TOLERANCE: Final = 200
# Seconds for which a Reject of a packet with a Request-Id is stored, if the packet does not expire earlier.
MAX_REJECT_SECONDS: Final = 600
DRAIN_SECONDS: Final = 5  # Seconds to wait for answers to packets in flight when the server stops.
