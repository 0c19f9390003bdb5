"""Requests to other servers: one guarded HTTP client, and what is fetched with it."""
