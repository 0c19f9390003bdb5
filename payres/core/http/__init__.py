"""Middleware and the HTTP protocol, between sockets and endpoints."""
