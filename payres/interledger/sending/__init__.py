"""Sending over Interledger with STREAM (RFC 29): `probe` finds out what a path offers, `payment` pays over it.

Packets go through the `connection.PacketSender` that is passed in; nothing here stores, connects, or reads the system's
clock.
"""
