import pytest

from payres.http.request_head import MALFORMED, ambiguity, credentials

Header = tuple[bytes, bytes]
HOST = (b"host", b"wallet.example")
CHUNKED = (b"transfer-encoding", b"chunked")
LENGTH = (b"content-length", b"2")


@pytest.mark.parametrize(
    "value",
    [
        *(b"wallet.example", b"wallet.example:8080", b"wallet.example:", b"WALLET_1.example.", b"127.0.0.1:80", b""),
        *(b"[::1]", b"[::1]:8080", b"[fe80::1%25eth0]:80", b"h \t"),
    ],
)
def test_ambiguity_takes_one_host(value: bytes) -> None:
    assert ambiguity("1.1", [(b"accept", b"*/*"), (b"host", value), LENGTH], False) is None


@pytest.mark.parametrize(
    "value",
    [
        *(
            b"a b",
            b"a, b",
            b"a/b",
            b"user@a",
            b"a:80:81",
            b"a:port",
            b"http://a",
            b"[::1",
            b"::1",
            b"a#b",
            b"a?b",
            b"\xe4",
        ),
        *(b"a\\b", b"a:80 b", b'"a"', b"<a>"),
    ],
)
def test_ambiguity_refuses_what_is_no_host(value: bytes) -> None:
    refusal = ambiguity("1.1", [(b"host", value)], False)
    assert refusal is not None
    assert (refusal.status, refusal.code) == (400, "invalid_request")
    assert "Host" in str(refusal)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("second", [b"wallet.example", b"other.example", b""])
def test_ambiguity_refuses_two_hosts(version: str, second: bytes) -> None:
    refusal = ambiguity(version, [HOST, LENGTH, (b"host", second)], False)
    assert refusal is not None
    assert "one Host" in str(refusal)


def test_ambiguity_wants_a_host_since_http_1_1() -> None:
    assert ambiguity("1.0", [LENGTH], False) is None
    assert ambiguity("1.0", [HOST], False) is None
    refusal = ambiguity("1.1", [LENGTH], False)
    assert refusal is not None
    assert "one Host" in str(refusal)


@pytest.mark.parametrize("version", ["0.9", "1.2", "2.0", "3.0"])
def test_ambiguity_refuses_other_versions(version: str) -> None:
    refusal = ambiguity(version, [HOST], False)
    assert refusal is not None
    assert str(refusal) == MALFORMED


@pytest.mark.parametrize("value", [b"chunked", b"Chunked", b"chunked "])
def test_ambiguity_takes_chunks(value: bytes) -> None:
    assert ambiguity("1.1", [HOST, (b"transfer-encoding", value)], False) is None


@pytest.mark.parametrize(
    "codings",
    [
        *([b"gzip, chunked"], [b"identity", b"chunked"], [b"chunked", b"identity"], [b"chunked", b"chunked"]),
        *([b"xchunked"], [b",chunked"], [b"chunked;q=1"], [b"identity"], [b""]),
    ],
)
def test_ambiguity_refuses_codings_that_are_not_known_to_all(codings: list[bytes]) -> None:
    refusal = ambiguity("1.1", [HOST, *((b"transfer-encoding", value) for value in codings)], False)
    assert refusal is not None
    assert "chunked" in str(refusal)


def test_ambiguity_refuses_chunks_before_http_1_1() -> None:
    """A reader of HTTP/1.0 on the way would have looked for the end elsewhere (RFC 9112 section 6.1)."""
    assert ambiguity("1.0", [HOST, CHUNKED], False) is not None


@pytest.mark.parametrize("length", [(b"content-length", b"0"), (b"x-length", b"2")])
def test_ambiguity_takes_an_offer_of_another_protocol(length: Header) -> None:
    assert ambiguity("1.1", [HOST, length], True) is None


@pytest.mark.parametrize("length", [LENGTH, CHUNKED, (b"content-length", b"10")])
def test_ambiguity_refuses_such_an_offer_with_a_body(length: Header) -> None:
    refusal = ambiguity("1.1", [HOST, length], True)
    assert refusal is not None
    assert "Upgrade" in str(refusal)


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
