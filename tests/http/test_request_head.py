import pytest

from payres.http.request_head import MALFORMED, ambiguity, credentials

Header = tuple[bytes, bytes]
HOST = (b"host", b"wallet.example")
CHUNKED = (b"transfer-encoding", b"chunked")
LENGTH = (b"content-length", b"2")
HOSTS = (
    *(b"wallet.example", b"wallet.example:8080", b"wallet.example:", b"WALLET_1.example.", b"127.0.0.1:80", b""),
    *(b"[::1]", b"[::1]:8080", b"[fe80::1%25eth0]:80", b"h \t"),
)
NO_HOSTS = (
    *(b"a b", b"a, b", b"a/b", b"user@a", b"a:80:81", b"a:port", b"http://a", b"[::1", b"::1", b"a#b", b"a?b"),
    *(b"\xe4", b"a\\b", b"a:80 b", b'"a"', b"<a>"),
)
NO_CODINGS = (
    *([b"gzip, chunked"], [b"identity", b"chunked"], [b"chunked", b"identity"], [b"chunked", b"chunked"]),
    *([b"xchunked"], [b",chunked"], [b"chunked;q=1"], [b"identity"], [b""]),
)


def coded(*values: bytes) -> list[Header]:
    return [HOST, *((b"transfer-encoding", value) for value in values)]


@pytest.mark.parametrize(
    ("version", "headers", "offers_upgrade"),
    [
        *(("1.1", [(b"accept", b"*/*"), (b"host", value), LENGTH], False) for value in HOSTS),
        *(("1.1", coded(value), False) for value in (b"chunked", b"Chunked", b"chunked ")),
        *(("1.0", headers, False) for headers in ([LENGTH], [HOST])),
        *(("1.1", [HOST, length], True) for length in ((b"content-length", b"0"), (b"x-length", b"2"))),
    ],
)
def test_request_that_all_understand_alike_is_taken(version: str, headers: list[Header], offers_upgrade: bool) -> None:
    assert ambiguity(version, headers, offers_upgrade) is None


@pytest.mark.parametrize(
    ("version", "headers", "offers_upgrade", "hint"),
    [
        *(("1.1", [(b"host", value)], False, "one Host") for value in NO_HOSTS),
        *(
            (version, [HOST, LENGTH, (b"host", second)], False, "one Host")
            for version in ("1.0", "1.1")
            for second in (b"wallet.example", b"other.example", b"")
        ),
        ("1.1", [LENGTH], False, "one Host"),
        *((version, [HOST], False, MALFORMED) for version in ("0.9", "1.2", "2.0", "3.0")),
        *(("1.1", coded(*values), False, "chunked") for values in NO_CODINGS),
        # A reader of HTTP/1.0 on the way would have looked for the end elsewhere (RFC 9112 section 6.1).
        ("1.0", [HOST, CHUNKED], False, "chunked"),
        *(("1.1", [HOST, length], True, "Upgrade") for length in (LENGTH, CHUNKED, (b"content-length", b"10"))),
    ],
)
def test_request_that_two_may_understand_in_two_ways_is_refused(
    version: str, headers: list[Header], offers_upgrade: bool, hint: str
) -> None:
    refusal = ambiguity(version, headers, offers_upgrade)
    assert refusal is not None
    assert (refusal.status, refusal.code) == (400, "invalid_request")
    assert hint in str(refusal)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        *((b"GNAP abc", "abc"), (b"gnap abc", "abc"), (b"GNAP  abc \t", "abc"), (b"GNAP \xe4", "ä")),
        *((b"Bearer abc", None), (b"GNAP", None), (b"GNAP ", None), (b"", None), (b"GNAPabc", None)),
    ],
)
def test_credentials_are_those_of_the_scheme(value: bytes, found: str | None) -> None:
    assert credentials([HOST, (b"authorization", value)], "gnap") == found


def test_credentials_are_of_the_first_line_and_none_without_one() -> None:
    assert credentials([(b"authorization", b"GNAP a"), (b"authorization", b"GNAP b")], "gnap") == "a"
    assert credentials([HOST], "gnap") is None
