"""What stands between sockets and endpoints."""
