"""Checks, backups and what operators see of the server itself."""
