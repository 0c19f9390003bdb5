"""The rules of payments: incoming payments, quotes, outgoing payments, and their settlement."""
