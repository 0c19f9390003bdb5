"""Content-Digest: RFC 9530's vectors, what is refused and why."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.signatures.digest import content_digest, digest_problem
from payres.signatures.reasons import Reason

BODY = b'{"hello": "world"}'
SHA_256 = "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"
SHA_512 = "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:"
# RFC 9530 appendix B uses the same text with a line feed at the end.
BODY_LF = BODY + b"\n"
SHA_256_LF = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"
SHA_512_LF = "sha-512=:YMAam51Jz/jOATT6/zvHrLVgOYTGFy1d6GJiOHTohq4yP+pgk4vf2aCsyRZOtw8MjkM7iw7yZ/WkppmM44T3qg==:"


@pytest.mark.parametrize(
    ("body", "algorithm", "expected"),
    [
        (BODY, "sha-256", SHA_256),
        (BODY, "sha-512", SHA_512),
        (BODY_LF, "sha-256", SHA_256_LF),
        (BODY_LF, "sha-512", SHA_512_LF),
    ],
)
def test_content_digest_gives_the_known_value(body: bytes, algorithm: str, expected: str) -> None:
    assert content_digest(body, algorithm) == expected
    assert digest_problem(expected, body) is None


def test_content_digest_is_sha_512_by_default() -> None:
    assert content_digest(BODY) == SHA_512


@pytest.mark.parametrize("algorithm", ["md5", "sha", "SHA-256", ""])
def test_content_digest_refuses_other_algorithms(algorithm: str) -> None:
    with pytest.raises(ValueError, match="use sha-256 or sha-512"):
        content_digest(BODY, algorithm)


@pytest.mark.parametrize(
    "header",
    [
        f"{SHA_256}, {SHA_512}",
        f"{SHA_512},{SHA_256}",
        f"md5=:AAAA:, {SHA_256}",
        f"unixsum=30637, {SHA_256}",
        f"{SHA_512};note=1",
        SHA_512.replace("==:", ":"),  # RFC 9651 section 4.2.7: padding may be missing
    ],
)
def test_digest_problem_accepts_every_good_form(header: str) -> None:
    assert digest_problem(header, BODY) is None


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("", Reason.DIGEST_MALFORMED),
        ("undefined", Reason.DIGEST_UNSUPPORTED),  # a structured field: the key "undefined" with the value true
        ("sha-256", Reason.DIGEST_MALFORMED),
        ("sha-256=", Reason.DIGEST_MALFORMED),
        ("SHA-256=:AAAA:", Reason.DIGEST_MALFORMED),
        (SHA_256.replace(":", ""), Reason.DIGEST_MALFORMED),
        ('sha-256="X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE="', Reason.DIGEST_MALFORMED),
        ("sha-256=(:AAAA:)", Reason.DIGEST_MALFORMED),
        (f"{SHA_256},", Reason.DIGEST_MALFORMED),
        (f"{SHA_256_LF}, {SHA_256}", Reason.DIGEST_MALFORMED),  # the same algorithm twice
        (f"{SHA_256}, {SHA_256}", Reason.DIGEST_MALFORMED),
        (f"é=:AAAA:, {SHA_256}", Reason.DIGEST_MALFORMED),
        ("x" * 8193, Reason.DIGEST_MALFORMED),
        ("md5=:AAAA:", Reason.DIGEST_UNSUPPORTED),
        ("sha-384=:AAAA:", Reason.DIGEST_UNSUPPORTED),
        (SHA_256_LF, Reason.DIGEST_MISMATCH),
        ("sha-256=::", Reason.DIGEST_MISMATCH),
        (f"{SHA_256}, {SHA_512_LF}", Reason.DIGEST_MISMATCH),  # one good digest does not excuse a bad one
        (f"{SHA_256_LF}, {SHA_512}", Reason.DIGEST_MISMATCH),
    ],
)
def test_digest_problem_says_what_is_wrong(header: str, reason: Reason) -> None:
    assert digest_problem(header, BODY) is reason


@given(st.text(max_size=200), st.binary(max_size=20))
def test_digest_problem_never_accepts_nor_raises_on_random_text(header: str, body: bytes) -> None:
    assert digest_problem(header, body) in {
        Reason.DIGEST_MALFORMED,
        Reason.DIGEST_UNSUPPORTED,
        Reason.DIGEST_MISMATCH,
    }


@given(st.binary(max_size=300), st.sampled_from(["sha-256", "sha-512"]), st.data())
def test_digest_problem_accepts_a_body_and_no_other(body: bytes, algorithm: str, data: st.DataObject) -> None:
    header = content_digest(body, algorithm)
    other = data.draw(st.binary(max_size=300).filter(lambda drawn: drawn != body))
    assert digest_problem(header, body) is None
    assert digest_problem(header, other) is Reason.DIGEST_MISMATCH


@given(st.binary(min_size=1, max_size=64))
def test_digest_problem_refuses_a_digest_cut_short(body: bytes) -> None:
    digest = b64encode(body[:31]).decode()
    assert digest_problem(f"sha-256=:{digest}:", body) is Reason.DIGEST_MISMATCH
