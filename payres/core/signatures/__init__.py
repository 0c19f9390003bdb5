"""Pure functions over bytes: no payments, SQL, clock or network. `verify` checks received signatures, `sign` creates
ours, `jwk` has the keys.
"""
