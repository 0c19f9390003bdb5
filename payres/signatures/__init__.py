"""HTTP Message Signatures (RFC 9421) with Ed25519, Content-Digest (RFC 9530) and Ed25519 JWKs.

Pure functions over bytes: no payments, no SQL, no clock, no network. `verify` checks what others sent,
`sign` signs what we send, `jwk` holds keys.
"""
