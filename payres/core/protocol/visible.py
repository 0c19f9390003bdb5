"""Makes texts and URLs of clients and other servers safe to show, in a page, a terminal, a log and a spreadsheet."""

import re
import unicodedata
from urllib.parse import quote, urlsplit

import msgspec

from payres.core.protocol.urls import app_scheme

MAX_NAME_LENGTH = 200
MAX_NOTE_LENGTH = 300
MAX_SAID = 300  # of what another server said of a failure
# Characters that RFC 3986 allows in a URL; others are shown percent-encoded.
URL_CHARACTERS = "%:/?#[]@!$&'()*+,;=-._~"
# Some scripts and emoji need the joiners; other format characters are only used to deceive.
JOINERS = "\u200c\u200d"
FIRST_JOINED = "\u0590"  # no letter before it, such as a Latin or Cyrillic one, looks different beside a joiner
VIRAMA = 9  # the combining class of the marks that a joiner may follow at the end of a word (RFC 5892 appendix A)
# Invisible letters and symbols: Hangul fillers and the Braille pattern without dots.
BLANKS = "\u115f\u1160\u2800\u3164\uffa0"
MARKS = ("Mn", "Me")
MOST_MARKS = 4  # on one letter; more are stacked over the lines around it
# Letters and figures that look like a Latin one, small or as a capital, after the confusables of Unicode (UTS 39).
LOOK_ALIKES = (
    str.maketrans("i10\u0131", "llol")
    | str.maketrans("\u0430\u0432\u0435\u0437\u043a\u043c\u043d\u043e", "abe3kmho")  # Cyrillic
    | str.maketrans("\u0440\u0441\u0442\u0443\u0445\u044c\u0455\u0456\u0458", "pctyxbslj")
    | str.maketrans("\u0475\u04af\u04bb\u04cf\u0501\u051b\u051d", "vyhldqw")
    | str.maketrans("\u03b1\u03b2\u03b5\u03b6\u03b7\u03b9\u03ba", "abezhlk")  # Greek
    | str.maketrans("\u03bc\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7", "mnoptyx")
)
# Small letters that look like another one than their capitals do.
SMALL_ALIKES = str.maketrans("\u0433\u03b3\u03b7\u03bd\u03c3\u03c5", "rynvou")
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
    line = "" if name is None or name == wallet_address else visible_line(name, MAX_NAME_LENGTH)
    return line if any(unicodedata.category(character)[0] in "LNPS" for character in line) else None


def as_read(name: str) -> str:
    """What tells a name from others for who reads it: its letters and figures, without case and accents, and the same
    for all that look alike; the name itself if it has none."""
    # Wallets are stored with it: a change of what it gives needs a migration that fills their columns again, like 0061.
    plain = unicodedata.normalize("NFKD", visible_text(name)).casefold()
    return "".join(one for one in plain if one.isalnum()).translate(LOOK_ALIKES) or plain


def readings(name: str) -> tuple[str, str]:
    """The ways to read a name: as `as_read` does, which takes each letter for what its capital looks like, and with the
    small letters as they look."""
    return as_read(name), as_read(unicodedata.normalize("NFKD", name).translate(SMALL_ALIKES))


def visible_text(text: str) -> str:
    """A text without characters that hide text, its own or that around it, or change its direction; blanks and line
    breaks become spaces.

    Joiners stay where they change what is seen: between letters of some scripts, and between symbols.
    """
    if text.isascii() and text.isprintable():  # as nearly all are
        return text
    kept, marks = [], 0
    for character in (one for one in text if not _is_hidden(one)):
        is_mark = unicodedata.category(character) in MARKS
        marks = marks + is_mark if is_mark or character in JOINERS else 0
        if marks <= MOST_MARKS:
            kept.append(" " if character.isspace() else character)
    found = "".join(kept)
    if not any(joiner in found for joiner in JOINERS):
        return found
    around = zip(" " + found, found, found[1:] + " ", strict=False)
    return "".join(one for before, one, after in around if one not in JOINERS or _joins(before, after))


def visible_line(text: str, most: int = MAX_SAID) -> str:
    """The same on one line, with single spaces, of at most so many characters."""
    return _shortened(" ".join(visible_text(text).split()), most)


def visible_lines(text: str) -> str:
    """The same of each line of a text; tabs stay."""
    pieces = [text] if text.isascii() and text.isprintable() else re.split("([\n\t])", text)
    return "".join(one if one in "\n\t" else visible_text(one) for one in pieces)


def is_visible(text: str) -> bool:
    """Whether all of a text on one line can be seen: it has only printable characters, and joiners that join."""
    return all(character.isprintable() or character in JOINERS for character in text) and visible_text(text) == text


def note_of(metadata: str | None) -> str:
    """The description in a payment's metadata, where clients put it, on one line and without hidden characters."""
    try:
        # The rest is not decoded: JSON numbers have no bounds.
        members = msgspec.json.decode(metadata or "{}", type=dict[str, msgspec.Raw])
        found = msgspec.json.decode(members.get("description", b'""'), type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return visible_line(found, MAX_NOTE_LENGTH)


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


def _shortened(line: str, length: int) -> str:
    return line if len(line) <= length else f"{line[: length - 1].rstrip(JOINERS)}…"


def _joins(before: str, after: str) -> bool:
    """Whether a joiner between these characters changes how they look."""
    if unicodedata.combining(before) == VIRAMA:
        return True
    return all(one >= FIRST_JOINED and unicodedata.category(one)[0] in "LMS" for one in (before, after))


def _is_hidden(character: str) -> bool:
    if character in JOINERS or character.isspace():
        return False
    return character in BLANKS or unicodedata.category(character) in INVISIBLE_CATEGORIES
