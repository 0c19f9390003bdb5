"""Why a signature is accepted or refused: a captured request read step by step, and the causes that can be confirmed.

`capture` reads the raw request, `explanation` applies the verifier's own rules to it, and the other modules recompute
the signature base or the digest for each mistake that clients are known to make. Pure, as all of `payres.signatures`.
"""
