"""Requests to other servers: the guarded HTTP client, wallet addresses and their keys."""
