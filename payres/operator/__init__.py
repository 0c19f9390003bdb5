"""The operator's rules: wallets and keys, assets and rates, money in and out, and the invariant checks."""
