"""Events: waiting for a change, and webhooks."""
