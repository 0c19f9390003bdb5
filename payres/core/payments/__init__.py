"""The rules of payments: incoming payments, quotes, outgoing payments, refunds and settlement."""
