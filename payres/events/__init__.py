"""Events: who waits for a change, and the webhooks that are told of it."""
