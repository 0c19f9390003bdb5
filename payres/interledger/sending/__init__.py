"""Sending over Interledger with STREAM (RFC 29): `probe` measures a path, `path` turns that into terms, `payment` pays.

Packets go through the `connection.PacketSender` that is passed in; nothing here stores, connects, or reads the system's
clock.
"""
