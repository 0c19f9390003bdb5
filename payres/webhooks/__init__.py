"""Webhooks: events sent to their endpoints."""
