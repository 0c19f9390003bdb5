"""Texts and URLs of clients made safe to show."""

import unicodedata
from urllib.parse import quote, urlsplit

import msgspec

from payres.urls import app_scheme

MAX_NAME_LENGTH = 200
MAX_NOTE_LENGTH = 300
# Characters that RFC 3986 allows in a URL; others are shown percent-encoded.
URL_CHARACTERS = "%:/?#[]@!$&'()*+,;=-._~"
# Letters of some scripts and emoji need the joiners; other format characters are only used to deceive.
JOINERS = "\u200c\u200d"
# Letters and symbols that are invisible: Hangul fillers and the Braille pattern without dots.
BLANKS = "\u115f\u1160\u2800\u3164\uffa0"
INVISIBLE_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn")


class ShownUrl(msgspec.Struct, frozen=True):
    """A URL in three parts, so that a page can emphasize the host.

    For a URL that opens an application, `host` is the scheme, with nothing before it.
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
    """The name that a client gives itself, on one line, without characters that hide text or change its direction.

    None without a visible name, or when it only repeats the wallet address.
    """
    line = "" if name is None or name == wallet_address else " ".join(visible_text(name).split())
    if not any(unicodedata.category(character)[0] in "LNPS" for character in line):
        return None
    return line if len(line) <= MAX_NAME_LENGTH else line[: MAX_NAME_LENGTH - 1] + "…"


def visible_text(text: str) -> str:
    """A text without characters that hide text or change its direction; every blank and line break is a space."""
    return "".join(" " if character.isspace() else character for character in text if not _is_hidden(character))


def note_of(metadata: str | None) -> str:
    """What a payment is for: its description, where clients put it, on one line and without hidden characters."""
    try:
        # The rest may be anything: JSON numbers have no bounds.
        members = msgspec.json.decode(metadata or "{}", type=dict[str, msgspec.Raw])
        found = msgspec.json.decode(members.get("description", b'""'), type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    line = " ".join(visible_text(found).split())
    return line if len(line) <= MAX_NOTE_LENGTH else f"{line[: MAX_NOTE_LENGTH - 1]}…"


def described(note: str) -> str | None:
    """The metadata of a payment for this, as text; none for nothing."""
    return msgspec.json.encode({"description": note}).decode() if note else None


def visible_url(url: str) -> ShownUrl:
    """A URL in plain ASCII: letters that only look like others and direction marks are percent-encoded."""
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
