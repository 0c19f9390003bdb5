"""A raw HTTP/1.1 request (RFC 9112), as captured in a file: read leniently, with a remark on what is odd."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from payres.signatures.base import Message
from payres.signatures.reasons import shown

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VERSION = re.compile(rb"HTTP/[0-9](\.[0-9])?")
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_LINE_END = re.compile(rb"\r?\n")
_ORIGIN = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_SPOKEN = (b"HTTP/1.1", b"HTTP/1.0")
_BARE_LINE_END = re.compile(rb"(?<!\r)\n")
# Everything below the space but for the tab and the ends of lines, and DEL (RFC 9110 section 5.5).
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_REJECTED = ", which the server answers with a plain 400."
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")

Headers = Sequence[tuple[str, bytes]]


class Capture(msgspec.Struct, frozen=True):
    """A request as it was sent. Header names are as written and repeats stay; a folded value has its folds.

    `remarks` are sentences about what is unusual in the capture.
    """

    method: str
    target: str
    headers: Headers
    body: bytes
    remarks: tuple[str, ...] = ()

    def message(self, base_url: str) -> Message:
        """The request as the server would see it: the target URI is `base_url` with the path and query sent."""
        lines = [(name.lower().encode("ascii"), value) for name, value in self.headers]
        return Message(self.method, base_url.rstrip("/") + self._path_and_query(), lines, self.body)

    def _path_and_query(self) -> str:
        target = _ORIGIN.sub("", self.target.partition("#")[0], count=1)
        target = target if target.startswith("/") else f"/{target}"
        # The server gets path and query apart, so a question mark with nothing after it is lost.
        return target.removesuffix("?") if target.count("?") == 1 else target


def read_capture(data: bytes) -> Capture:
    """Read a request whose lines end in CRLF or LF; raise ValueError with a sentence that says what is wrong.

    The body is as long as Content-Length says, chunked, or else everything after the blank line.
    """
    data = data.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    if not data:
        raise ValueError("There is no request: the input is empty")
    end = _END_OF_HEAD.search(data)
    head, rest = (data, b"") if end is None else (data[: end.start()], data[end.end() :])
    method, target, more = _request_line(_LINE_END.split(head, maxsplit=1)[0])
    headers = _headers(head)
    body, remarks = _body(headers, rest)
    more += _rejected(data[: end.end()] if end else data, method, headers)
    if end is None:
        remarks.insert(0, "No blank line ends the headers, so the request has no body.")
    return Capture(method, target, headers, body, (*more, *remarks))


def _request_line(line: bytes) -> tuple[str, str, list[str]]:
    words = line.split()
    whole = len(words) == 3 and _VERSION.fullmatch(words[2])
    if not words or not _TOKEN.fullmatch(words[0]) or not (whole or len(words) == 2):
        raise ValueError(
            f"The first line must be like POST /quotes HTTP/1.1, and is {shown(line.decode('utf-8', 'replace'))}"
        )
    target = words[1].decode("utf-8", "replace")
    if not target.startswith("/") and not _ORIGIN.match(target):
        raise ValueError(f"The request's target must begin with / or be an http URL, and is {shown(target)}")
    remarks = [] if whole else ["The first line does not end in HTTP/1.1."]
    if whole and words[2] not in _SPOKEN:
        version = words[2].decode("ascii")
        remarks.append(
            f"The first line says {version}; the server speaks HTTP/1.1 only, so either a proxy translates this request"
            " or the server answers it with a plain 400."
        )
    if _ORIGIN.match(target):
        remarks.append("The first line holds a whole URL; the server takes its path and query, and not its host.")
    return words[0].decode("ascii"), target, remarks


def _rejected(head: bytes, method: str, headers: Headers) -> Iterator[str]:
    """What the HTTP server answers before the application, so before any signature is looked at."""
    if any(b"\n" in value for _, value in headers):
        yield f"A header is folded over several lines{_REJECTED}"
    if method != method.upper():
        yield f"The method is not in capitals{_REJECTED}"
    if _BARE_LINE_END.search(head):
        yield f"Lines end in LF alone; if they were sent so and not with CR LF, they are not HTTP/1.1{_REJECTED}"
    if _CONTROL.search(head):
        yield f"The head has a control character such as NUL{_REJECTED}"
    if not head.partition(b"\n")[0].isascii():
        yield f"The first line has characters beyond ASCII{_REJECTED}"


def _headers(head: bytes) -> list[tuple[str, bytes]]:
    headers: list[tuple[str, bytes]] = []
    for number, line in enumerate(_LINE_END.split(head)[1:], start=2):
        if line[:1] in (b" ", b"\t") and headers:
            # An obsolete fold (RFC 9112 section 5.2); left, because what is signed is the unfolded value.
            name, value = headers.pop()
            headers.append((name, value + b"\r\n" + line.rstrip(b" \t")))
            continue
        written, colon, value = line.partition(b":")
        if not colon or not _TOKEN.fullmatch(written):
            raise ValueError(f"Line {number} is not a header: {shown(line.decode('utf-8', 'replace'))}")
        headers.append((written.decode("ascii"), value.strip(b" \t")))
    return headers


def _body(headers: Headers, rest: bytes) -> tuple[bytes, list[str]]:
    fields = {name.lower(): value for name, value in headers}
    if b"chunked" in fields.get("transfer-encoding", b"").lower():
        body = _unchunked(rest)
        if body is None:
            return rest, ["The body is declared as chunked and is not; it is taken as it is."]
        return body, ["The body came in chunks; shown and checked is what they hold together."]
    length = fields.get("content-length")
    if length is None:
        if not rest.strip():
            return b"", []
        return rest, ["There is no Content-Length; everything after the blank line is taken as the body."]
    if not length.isdigit() or len(length) > 18:
        return rest, ["Content-Length is not a number; everything after the blank line is taken as the body."]
    body, more = rest[: int(length)], rest[int(length) :]
    if len(body) < int(length):
        return body, [
            f"Content-Length says {int(length)} bytes and {len(body)} follow; a server would wait for the rest."
        ]
    if more in (b"", b"\n", b"\r\n"):  # one line end more is what an editor leaves behind
        return body, []
    return body, [f"{len(more)} bytes follow the body that Content-Length declares; left out."]


def _unchunked(rest: bytes) -> bytes | None:
    """The content of a chunked body (RFC 9112 section 7.1), or None if it is not one."""
    position = 0
    parts: list[bytes] = []
    while match := _CHUNK_SIZE.match(rest, position):
        size, start = int(match[1], 16), match.end()
        if size == 0:
            return b"".join(parts)
        parts.append(rest[start : start + size])
        ending = _LINE_END.match(rest, start + size)
        if ending is None:
            return None
        position = ending.end()
    return None
