"""What payres asks of other servers: one guarded HTTP client, and what it fetches with it."""
