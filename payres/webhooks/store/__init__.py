"""SQL of webhooks and deliveries."""
