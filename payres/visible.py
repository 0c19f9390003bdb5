"""Makes texts and URLs of clients safe to show."""

import unicodedata
from urllib.parse import quote, urlsplit

import msgspec

from payres.urls import app_scheme

MAX_NAME_LENGTH = 200
MAX_NOTE_LENGTH = 300
# Characters that RFC 3986 allows in a URL; others are shown percent-encoded.
URL_CHARACTERS = "%:/?#[]@!$&'()*+,;=-._~"
# Some scripts and emoji need the joiners; other format characters are only used to deceive.
JOINERS = "\u200c\u200d"
# Invisible letters and symbols: Hangul fillers and the Braille pattern without dots.
BLANKS = "\u115f\u1160\u2800\u3164\uffa0"
INVISIBLE_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn")


class ShownUrl(msgspec.Struct, frozen=True):
    """A URL in three parts, so that a page can emphasize the host.

    For a URL that opens an application, `host` is the scheme, and `before` is empty.
    """

    before: str
    host: str
    after: str

    @property
    def is_app(self) -> bool:
        return not self.before

    @property
    def text(self) -> str:
        return self.before + self.host + self.after


def visible_name(name: str | None, wallet_address: str | None) -> str | None:
    """A client's own name, on one line, without characters that hide text or change its direction.

    None if nothing is visible, or it only repeats the wallet address.
    """
    line = "" if name is None or name == wallet_address else " ".join(visible_text(name).split())
    if not any(unicodedata.category(character)[0] in "LNPS" for character in line):
        return None
    return line if len(line) <= MAX_NAME_LENGTH else line[: MAX_NAME_LENGTH - 1] + "…"


def visible_text(text: str) -> str:
    """A text without characters that hide text or change its direction; blanks and line breaks become spaces."""
    return "".join(" " if character.isspace() else character for character in text if not _is_hidden(character))


def note_of(metadata: str | None) -> str:
    """The description in a payment's metadata, where clients put it, on one line and without hidden characters."""
    try:
        # The rest is not decoded: JSON numbers have no bounds.
        members = msgspec.json.decode(metadata or "{}", type=dict[str, msgspec.Raw])
        found = msgspec.json.decode(members.get("description", b'""'), type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    line = " ".join(visible_text(found).split())
    return line if len(line) <= MAX_NOTE_LENGTH else f"{line[: MAX_NOTE_LENGTH - 1]}…"


def described(note: str) -> str | None:
    """The metadata with this description, as JSON text; None if it is empty."""
    return msgspec.json.encode({"description": note}).decode() if note else None


def visible_url(url: str) -> ShownUrl:
    """A URL in plain ASCII: look-alike letters and direction marks are percent-encoded."""
    text = quote(url, safe=URL_CHARACTERS)
    if app_scheme(url) is not None:
        scheme, colon, rest = text.partition(":")
        return ShownUrl("", scheme, colon + rest)
    scheme, _, rest = text.partition("//")
    host = urlsplit(text).netloc
    return ShownUrl(f"{scheme}//", host, rest[len(host) :])


def _is_hidden(character: str) -> bool:
    if character in JOINERS or character.isspace():
        return False
    return character in BLANKS or unicodedata.category(character) in INVISIBLE_CATEGORIES
