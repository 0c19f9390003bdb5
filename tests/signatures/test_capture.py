"""Raw requests as captured: line ends, folds, repeats, bodies of every kind, and what is no request."""

import re

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.http.error_responses import ErrorResponse
from payres.http.request_head import ambiguity
from payres.signatures.capture import read_capture

BASE = "https://pay.example"


def lines(*head: str, end: str = "\r\n") -> bytes:
    return end.join([*head, "", ""]).encode()


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_request_is_read_with_either_line_end(end: str) -> None:
    capture = read_capture(
        lines("POST /quotes?a=1 HTTP/1.1", "Host: pay.example", "X-Note:  a b\t", "Content-Length: 4", end=end)
        + b"{\r\n}"
    )
    assert (capture.method, capture.target, capture.body) == ("POST", "/quotes?a=1", b"{\r\n}")
    assert capture.headers == [("Host", b"pay.example"), ("X-Note", b"a b"), ("Content-Length", b"4")]
    assert "LF alone" in "".join(capture.remarks) if end == "\n" else capture.remarks == ()
    message = capture.message(f"{BASE}/")
    assert (message.method, message.target_uri, message.body) == ("POST", f"{BASE}/quotes?a=1", b"{\r\n}")
    assert message.headers == [(b"host", b"pay.example"), (b"x-note", b"a b"), (b"content-length", b"4")]


def test_folded_and_repeated_headers_are_kept() -> None:
    capture = read_capture(lines("GET /a HTTP/1.1", "X: one", "  two", "\tthree", "x: four", "X:"))
    assert capture.headers == [("X", b"one\r\n  two\r\n\tthree"), ("x", b"four"), ("X", b"")]
    assert capture.remarks == ("A header is folded over several lines, which the server answers with a plain 400.",)


@pytest.mark.parametrize(
    ("target", "uri"),
    [
        ("/", f"{BASE}/"),
        ("/a/?", f"{BASE}/a/"),
        ("/a??", f"{BASE}/a??"),
        ("/a?b=%3A#c", f"{BASE}/a?b=%3A"),
        ("//a", f"{BASE}//a"),
        ("http://other.example:8080/a?b", f"{BASE}/a?b"),
        ("HTTPS://other.example", f"{BASE}/"),
        ("https://other.example?b", f"{BASE}/?b"),
        ("https://[broken/a", f"{BASE}/a"),
    ],
)
def test_target_uri_is_the_base_url_with_path_and_query(target: str, uri: str) -> None:
    assert read_capture(lines(f"GET {target} HTTP/1.1")).message(BASE).target_uri == uri


@pytest.mark.parametrize(
    ("headers", "rest", "body", "remark"),
    [
        ([], b"", b"", ""),
        ([], b"\n \r\n", b"", ""),
        ([], b"{}\n", b"{}\n", "no Content-Length"),
        (["Content-Length: 2"], b"{}", b"{}", ""),
        (["content-length: 2"], b"{}\n", b"{}", ""),
        (["Content-Length: 2"], b"{}\r\n", b"{}", ""),
        (["Content-Length: 0"], b"{}", b"", "2 bytes follow the body"),
        (["Content-Length: 2"], b"{}{}", b"{}", "2 bytes follow the body"),
        (["Content-Length: 9"], b"{}", b"{}", "says 9 bytes and 2 follow"),
        (["Content-Length: two"], b"{}", b"{}", "not a number"),
        (["Content-Length: " + "9" * 5000], b"{}", b"{}", "not a number"),
        (["Transfer-Encoding: chunked"], b"2\r\n{}\r\n0\r\n\r\n", b"{}", "in chunks"),
        (["Transfer-Encoding: Chunked"], b"1;a=b\n{\n1\n}\n0\n\n", b"{}", "in chunks"),
        (["Transfer-Encoding: chunked"], b"{}", b"{}", "declared as chunked and is not"),
        (["Transfer-Encoding: chunked"], b"9\r\n{}", b"9\r\n{}", "declared as chunked and is not"),
        (["Transfer-Encoding: chunked"], b"2\r\n{}2\r\n", b"2\r\n{}2\r\n", "declared as chunked and is not"),
    ],
)
def test_body_is_as_long_as_the_headers_say(headers: list[str], rest: bytes, body: bytes, remark: str) -> None:
    capture = read_capture(lines("POST /a HTTP/1.1", *headers) + rest)
    assert capture.body == body
    assert len(capture.remarks) == bool(remark)
    assert remark in "".join(capture.remarks)


def test_what_is_before_and_missing_after_is_forgiven() -> None:
    capture = read_capture(b"\xef\xbb\xbf\r\nGET /a HTTP/1.1\r\nHost: b")
    assert (capture.method, capture.headers, capture.body) == ("GET", [("Host", b"b")], b"")
    assert capture.remarks == ("No blank line ends the headers, so the request has no body.",)
    assert read_capture(b"GET /a\r\n\r\n").remarks == ("The first line does not end in HTTP/1.1.",)
    assert "not in capitals" in read_capture(b"get /a HTTP/1.1\n\n").remarks[0]
    assert "not its host" in read_capture(b"GET http://a.example/ HTTP/1.1\n\n").remarks[0]


@pytest.mark.parametrize(
    ("raw", "remark"),
    [
        (b"GET /a HTTP/1.1\nHost: b\n\n", "Lines end in LF alone"),
        (b"GET /a HTTP/1.1\r\nHost: b\nX: c\r\n\r\n", "Lines end in LF alone"),
        (b"GET /a HTTP/1.1\r\nHost: b\n\r\n", "Lines end in LF alone"),
        (b"GET /a HTTP/2\r\nHost: b\r\n\r\n", "says HTTP/2; the server speaks HTTP/1.1 only"),
        (b"GET /a HTTP/2.0\r\nHost: b\r\n\r\n", "says HTTP/2.0"),
        (b"GET /a HTTP/1.2\r\nHost: b\r\n\r\n", "says HTTP/1.2"),
        (b"GET /a HTTP/1.1\r\nHost: b\r\nX: a\0b\r\n\r\n", "control character"),
        (b"GET /a HTTP/1.1\r\nHost: b\r\nX: a\rb\r\n\r\n", "control character"),
        (b"GET /a\x7f HTTP/1.1\r\nHost: b\r\n\r\n", "control character"),
        ("GET /é HTTP/1.1\r\nHost: b\r\n\r\n".encode(), "beyond ASCII"),
    ],
)
def test_what_the_server_rejects_before_it_looks_at_the_signature_is_remarked(raw: bytes, remark: str) -> None:
    [found] = read_capture(raw).remarks
    assert remark in found
    with pytest.raises(ErrorResponse) if b"HTTP/2.0" in raw else pytest.raises(httptools.HttpParserError):
        parse_as_the_server(raw)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_what_the_server_takes_is_not_remarked(version: str) -> None:
    raw = f"GET /a?b HTTP/{version}\r\nHost: b\r\nX:\ta\tb é \r\n\r\n".encode()
    assert read_capture(raw).remarks == ()
    parse_as_the_server(raw)


class Head:
    """What httptools finds in a head."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))


def parse_as_the_server(raw: bytes) -> None:
    """Raises what the server's own parser and its further checks raise."""
    head = Head()
    parser = httptools.HttpRequestParser(head)
    parser.feed_data(raw)
    error = ambiguity(parser.get_http_version(), head.headers, offers_upgrade=False)
    if error is not None:
        raise error


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"", "the input is empty"),
        (b"\r\n\n", "the input is empty"),
        (b"   \n\n", "first line must be like"),
        (b"HTTP/1.1 401 Unauthorized\n\n", "and is 'HTTP/1.1 401 Unauthorized'"),
        (b"GET\n\n", "first line must be like"),
        (b"GET /a HTTP/1.1 b\n\n", "first line must be like"),
        (b"GET /a b\n\n", "first line must be like"),
        (b"{}", "first line must be like"),
        (b"\xff\xfe\x00", "first line must be like"),
        (b"GET a HTTP/1.1\n\n", "must begin with / or be an http URL, and is 'a'"),
        (b"OPTIONS * HTTP/1.1\n\n", "must begin with /"),
        (b"GET /a HTTP/1.1\nHost: b\nnonsense\n\n", "Line 3 is not a header: 'nonsense'"),
        (b"GET /a HTTP/1.1\nHost : b\n\n", "Line 2 is not a header: 'Host : b'"),
        (b"GET /a HTTP/1.1\n folded: b\n\n", "Line 2 is not a header"),
        (b"GET /a HTTP/1.1\n: b\n\n", "Line 2 is not a header"),
        (b"GET /a HTTP/1.1\nH\xc3\xa9: b\n\n", "Line 2 is not a header"),
    ],
)
def test_what_is_no_request_is_said(raw: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read_capture(raw)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_with_a_sentence(data: bytes) -> None:
    for raw in (data, b"POST /a HTTP/1.1\n" + data, b"POST /a HTTP/1.1\nTransfer-Encoding: chunked\n\n" + data):
        try:
            read_capture(raw).message(BASE)
        except ValueError as error:
            sentence = str(error)
            assert sentence.startswith(("There is no", "The first line", "The request's target", "Line "))
