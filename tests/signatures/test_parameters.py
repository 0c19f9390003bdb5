"""Signature parameters: types, allowed values, freshness to the microsecond."""

import pytest

from payres.signatures.parameters import Parameters, Policy, check_freshness, read_parameters
from payres.signatures.reasons import Reason, SignatureError

CREATED = 1_618_884_473
SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (';created=7;keyid="k"', Parameters("k", 7, None, None)),
        (';keyid="k";created=7', Parameters("k", 7, None, None)),
        (';keyid="k";  created=7;alg="ed25519";tag="gnap"', Parameters("k", 7, None, None)),
        (';keyid="a\\"b\\\\c";created=7;nonce="n,;=()";expires=9', Parameters('a"b\\c', 7, "n,;=()", 9)),
        (';keyid="k";created=-7;context="mine";flag;other=?0', Parameters("k", -7, None, None)),
        (f';keyid="{"k" * 256}";created=7;nonce="{"n" * 256}"', Parameters("k" * 256, 7, "n" * 256, None)),
    ],
)
def test_read_parameters_reads(text: str, expected: Parameters) -> None:
    assert read_parameters(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Reason.MISSING_KEYID),
        (";created=7", Reason.MISSING_KEYID),
        (";created=7;keyid", Reason.MISSING_KEYID),
        (";created=7;keyid=k", Reason.MISSING_KEYID),
        (";created=7;keyid=1", Reason.MISSING_KEYID),
        (';created=7;keyid=""', Reason.MISSING_KEYID),
        (';created=7;keyid=%"k"', Reason.MISSING_KEYID),
        (f';created=7;keyid="{"k" * 257}"', Reason.MISSING_KEYID),
        (';keyid="k"', Reason.MISSING_CREATED),
        (';keyid="k";created', Reason.MISSING_CREATED),
        (';keyid="k";created=?1', Reason.MISSING_CREATED),
        (';keyid="k";created=7.0', Reason.MISSING_CREATED),
        (';keyid="k";created="7"', Reason.MISSING_CREATED),
        (';keyid="k";created=@7', Reason.MISSING_CREATED),
        (';keyid="k";created=7;expires=?1', Reason.EXPIRED),
        (';keyid="k";created=7;expires="9"', Reason.EXPIRED),
        (';keyid="k";created=7;alg="rsa-pss-sha512"', Reason.UNSUPPORTED_ALGORITHM),
        (';keyid="k";created=7;alg="EdDSA"', Reason.UNSUPPORTED_ALGORITHM),
        (';keyid="k";created=7;alg=ed25519', Reason.UNSUPPORTED_ALGORITHM),
        (';keyid="k";created=7;alg', Reason.UNSUPPORTED_ALGORITHM),
        (';keyid="k";created=7;tag="gnap-rotate"', Reason.UNSUPPORTED_TAG),
        (';keyid="k";created=7;tag=gnap', Reason.UNSUPPORTED_TAG),
        (';keyid="k";created=7;nonce=n', Reason.MALFORMED_NONCE),
        (';keyid="k";created=7;nonce=1', Reason.MALFORMED_NONCE),
        (';keyid="k";created=7;nonce=""', Reason.MALFORMED_NONCE),
        (f';keyid="k";created=7;nonce="{"n" * 257}"', Reason.MALFORMED_NONCE),
        (';keyid="k";created=7;keyid="l"', Reason.MALFORMED_SIGNATURE_INPUT),
        (';keyid="k";created=7;created=7', Reason.MALFORMED_SIGNATURE_INPUT),
        (';keyid="k";created=1234567890123456', Reason.MALFORMED_SIGNATURE_INPUT),
        (';keyid="k";created=undefined;', Reason.MALFORMED_SIGNATURE_INPUT),
        (' ;keyid="k";created=7', Reason.MALFORMED_SIGNATURE_INPUT),
        (';keyid="k" ;created=7', Reason.MALFORMED_SIGNATURE_INPUT),
        (';keyid="\x01";created=7', Reason.MALFORMED_SIGNATURE_INPUT),
        ("keyid", Reason.MALFORMED_SIGNATURE_INPUT),
        (';keyid="k";created=7,()', Reason.MALFORMED_SIGNATURE_INPUT),
    ],
)
def test_read_parameters_refuses(text: str, reason: Reason) -> None:
    with pytest.raises(SignatureError) as caught:
        read_parameters(text)
    assert caught.value.rejected.reason is reason


@pytest.mark.parametrize(
    ("now", "expires", "reason"),
    [
        (CREATED * SECOND, None, None),
        ((CREATED + 300) * SECOND, None, None),
        ((CREATED + 300) * SECOND + 1, None, Reason.CREATED_TOO_OLD),
        ((CREATED - 60) * SECOND, None, None),
        ((CREATED - 60) * SECOND - 1, None, Reason.CREATED_IN_FUTURE),
        (CREATED * SECOND, CREATED + 1, None),
        ((CREATED + 1) * SECOND - 1, CREATED + 1, None),
        ((CREATED + 1) * SECOND, CREATED + 1, Reason.EXPIRED),
        (CREATED * SECOND, CREATED - 1, Reason.EXPIRED),
        ((CREATED + 301) * SECOND, CREATED + 1000, Reason.CREATED_TOO_OLD),  # expires extends nothing
        (0, None, Reason.CREATED_IN_FUTURE),
        (10**30, None, Reason.CREATED_TOO_OLD),
    ],
)
def test_check_freshness_at_its_edges(now: int, expires: int | None, reason: Reason | None) -> None:
    parameters = Parameters("k", CREATED, None, expires)
    if reason is None:
        check_freshness(parameters, Policy(), now)
        return
    with pytest.raises(SignatureError) as caught:
        check_freshness(parameters, Policy(), now)
    assert caught.value.rejected.reason is reason


def test_check_freshness_follows_the_policy_and_says_so() -> None:
    parameters = Parameters("k", CREATED, None, None)
    strict = Policy(max_age_seconds=5, max_future_seconds=0)
    with pytest.raises(SignatureError, match="is 6 s old, and 5 s are allowed"):
        check_freshness(parameters, strict, (CREATED + 6) * SECOND)
    with pytest.raises(SignatureError, match="2 s in the future"):
        check_freshness(parameters, strict, (CREATED - 2) * SECOND)
    check_freshness(parameters, Policy(max_age_seconds=10_000), (CREATED + 9_999) * SECOND)
