"""Other spellings of a body, as clients and proxies are known to make them."""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

_BOM: Final = b"\xef\xbb\xbf"
_REWRITTEN = "take the digest of the very bytes that are sent: serialise once, sign that, send that"
_LINE_ENDS = "take the digest after the line ends are as they will be sent"
_END = "take the digest of the body with the line end that is sent, or do not send one"
# How the JSON libraries of several languages write by default.
_STYLES: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("compact JSON", {"separators": (",", ":"), "ensure_ascii": False}),
    ("compact JSON with escapes for what is not ASCII", {"separators": (",", ":")}),
    ("JSON with a space after commas and colons", {"ensure_ascii": False}),
    ("JSON with a space after commas and colons, and escapes for what is not ASCII", {}),
    ("JSON indented by 2 spaces", {"indent": 2, "ensure_ascii": False}),
    ("JSON indented by 4 spaces", {"indent": 4, "ensure_ascii": False}),
    ("JSON indented by a tab", {"indent": "\t", "ensure_ascii": False}),
)


class Body(msgspec.Struct, frozen=True):
    """`cause` is a stable word, `what` says what the body would be, `advice` what to do if it was just that."""

    cause: str
    what: str
    advice: str
    content: bytes


@lru_cache(maxsize=4)
def other_bodies(body: bytes) -> tuple[Body, ...]:
    """Every other spelling of a body; none is the body itself. Kept, because a search asks for them again and again."""
    return tuple(found for found in _spellings(body) if found.content != body)


def _spellings(body: bytes) -> Iterator[Body]:
    yield Body("body_newline", "sent without the line end after it", _END, body.rstrip(b"\r\n"))
    for end, name in ((b"\n", "a line feed"), (b"\r\n", "a carriage return and a line feed")):
        yield Body("body_newline", f"sent with {name} after it", _END, body + end)
    yield from _rewritten(body)
    lines = body.replace(b"\r\n", b"\n")
    yield Body("body_line_ends", "sent with LF for CRLF", _LINE_ENDS, lines)
    yield Body("body_line_ends", "sent with CRLF for LF", _LINE_ENDS, lines.replace(b"\n", b"\r\n"))
    yield Body("body_spelling", "sent without blanks around it", _REWRITTEN, body.strip())
    yield Body("body_spelling", "sent with a byte order mark", _REWRITTEN, _BOM + body)
    yield Body("body_spelling", "sent without its byte order mark", _REWRITTEN, body.removeprefix(_BOM))
    yield Body("body_empty", "empty", "take the digest of the body that is sent, and not of nothing", b"")


def _rewritten(body: bytes) -> Iterator[Body]:
    try:
        text = body.decode("utf-8")
        value = json.loads(text)
        for name, style in _STYLES:
            for order, keys in (("", False), (", members sorted", True)):
                written = json.dumps(value, sort_keys=keys, **style).encode()
                for ending, end in (("", b""), (", with a line end", b"\n")):
                    yield Body("body_rewritten", f"{name}{order}{ending}", _REWRITTEN, written + end)
        yield Body("body_rewritten", "its own text as a JSON string", _REWRITTEN, json.dumps(text).encode())
        if isinstance(value, str):
            yield Body("body_rewritten", "what its JSON string holds", _REWRITTEN, value.encode())
    except (ValueError, RecursionError):
        return
