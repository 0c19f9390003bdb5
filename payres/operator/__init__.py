"""The operator's rules: wallets and keys, assets and rates, money in and out, and the proof of the books."""
