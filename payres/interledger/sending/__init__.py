"""Sending over Interledger with STREAM (RFC 29): `probe` measures a path, `payment` pays over it.

Packets go through the given `connection.PacketSender`; nothing here stores, connects, or reads the system clock.
"""
