"""Requests to other servers: a guarded HTTP client, and the resources fetched with it."""
