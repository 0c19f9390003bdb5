"""The rules of payments: incoming payments, quotes, outgoing payments, and of how they end."""
