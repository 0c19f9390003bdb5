"""SQL of sessions and browsers."""
