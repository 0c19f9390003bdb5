"""Sending over Interledger with STREAM (RFC 29): what a path offers, what a payment may cost, and the payment itself.

`probe` asks a path, `terms` makes an offer of what it says, `payment` pays. Packets go through the `channel.Outbound`
that is handed in; nothing here stores, connects, or knows the time by itself.
"""
