"""Events: waiting for changes, and webhooks."""
