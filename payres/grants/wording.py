"""What a grant permits, in words for the wallet's owner, and texts of clients made safe to show.

The words say exactly what `payres.grants.access` and `payres.grants.limits` permit.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlsplit

import msgspec

from payres.amounts import Asset, describe_amount, parse_value
from payres.clock import DAY, HOUR
from payres.grants.access import INCLUDING, granted_access
from payres.grants.gnap import Access, Limits, OutgoingPaymentAccess, Subject
from payres.grants.intervals import Interval, describe, parse_interval
from payres.urls import app_scheme, canonical
from payres.wire import Amount

MAX_NAME_LENGTH = 200
# Characters that RFC 3986 allows in a URL; others are shown percent-encoded.
URL_CHARACTERS = "%:/?#[]@!$&'()*+,;=-._~"
# Letters of some scripts and emoji need the joiners; other format characters are only used to deceive.
JOINERS = "\u200c\u200d"
# Letters and symbols that are invisible: Hangul fillers and the Braille pattern without dots.
BLANKS = "\u115f\u1160\u2800\u3164\uffa0"
INVISIBLE_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn")

HEADINGS = {
    "outgoing-payment": "Payments from {wallet}",
    "incoming-payment": "Payments into {wallet}",
    "quote": "Prices of payments from {wallet}",
}
# Every action that `payres.grants.gnap` lists for a type, shown in this order; sending money has its own sentence
# with the limits. The -all forms come first, so that the plain form that they include can be left out.
ACTIONS: Mapping[str, Mapping[str, str]] = {
    "outgoing-payment": {
        "list-all": "List every payment, also those made by other apps",
        "read-all": "See the details of every payment, also of those made by other apps",
        "list": "List the payments that it made itself",
        "read": "See the details of the payments that it made itself",
    },
    "incoming-payment": {
        "create": "Prepare payments for others to make",
        "complete": "Close payments, so that they take no more money",
        "list-all": "List every payment, also those prepared by other apps",
        "read-all": "See the details of every payment, also of those prepared by other apps",
        "list": "List the payments that it prepared itself",
        "read": "See the details of the payments that it prepared itself",
    },
    "quote": {
        "create": "Ask what a payment would cost",
        "read-all": "See every price that was asked for, also by other apps",
        "read": "See the prices that it asked for itself",
    },
}
# Microseconds. Few people can estimate what the limit of a shorter window adds up to.
SHORT_WINDOW = HOUR


class Spending(msgspec.Struct, frozen=True):
    """How much the client may spend, such as "up to USD 20.00" and "in total", with the only receiver if there is one.
    unlimited means that only the wallet's balance limits it. total is what short windows add up to, such as "USD
    86,400.00 a day".
    """

    most: str
    period: str
    receiver: str | None
    unlimited: bool = False
    total: str | None = None


class Permission(msgspec.Struct, frozen=True):
    """One access item in words. The heading names the wallet address when it is not that of the reader."""

    heading: str
    actions: Sequence[str]
    spending: Spending | None


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


def describe_access(access: str, own: str = "") -> Sequence[Permission]:
    """The access (JSON text) of a grant in words, spending first; `own` is the reader's wallet address, if any."""
    items = sorted(granted_access(access), key=lambda item: not isinstance(item, OutgoingPaymentAccess))
    return [_describe_item(item, own) for item in items]


def describe_subject(subject: str | None) -> str | None:
    """The wallet address in a subject request (JSON text), if there is one, which the client then knows."""
    return subject and visible_url(msgspec.json.decode(subject, type=Subject).sub_ids[0].id).text


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


def visible_url(url: str) -> ShownUrl:
    """A URL in plain ASCII: letters that only look like others and direction marks are percent-encoded."""
    text = quote(url, safe=URL_CHARACTERS)
    if app_scheme(url) is not None:
        scheme, colon, rest = text.partition(":")
        return ShownUrl("", scheme, colon + rest)
    scheme, _, rest = text.partition("//")
    host = urlsplit(text).netloc
    return ShownUrl(f"{scheme}//", host, rest[len(host) :])


def _describe_item(item: Access, own: str) -> Permission:
    kind, actions = str(item.__struct_config__.tag), {*map(str, item.actions)}
    if not item.identifier:
        wallet = "any wallet of this server"
    elif own and canonical(item.identifier) == canonical(own):
        wallet = "your wallet"
    else:
        wallet = visible_url(item.identifier).text
    return Permission(
        heading=HEADINGS[kind].format(wallet=wallet),
        actions=[
            words for name, words in ACTIONS[kind].items() if name in actions and INCLUDING.get(name) not in actions
        ],
        spending=_describe_spending(item) if isinstance(item, OutgoingPaymentAccess) else None,
    )


def _describe_spending(item: OutgoingPaymentAccess) -> Spending | None:
    """None when the client may not spend at all."""
    if "create" not in item.actions:
        return None
    limits = item.limits or Limits()
    interval = parse_interval(limits.interval) if limits.interval else None
    period = describe(interval) if interval else None
    receiver = visible_url(limits.receiver).text if limits.receiver else None
    amount = limits.debit_amount or limits.receive_amount
    if not amount:
        return Spending("any amount", period or "as often as it likes", receiver, unlimited=True)
    spent = "" if limits.debit_amount else "what it takes for the receiver to get "
    total = _total(amount, interval) if interval and interval.mean_length < SHORT_WINDOW else None
    most = f"{spent}up to {_describe_amount(amount, parse_value(amount.value))}"
    return Spending(most, period or "in total", receiver, total=total and spent + total)


def _total(amount: Amount, interval: Interval) -> str | None:
    """The sum of the limits of all windows of a day, or of all windows; None when there is only one.

    Rounded up, because it is a warning.
    """
    value, windows = parse_value(amount.value), interval.windows_total
    if windows == 1:
        return None
    a_day = -(-value * DAY // interval.mean_length)
    if windows is not None and windows * value <= a_day:
        return f"{_describe_amount(amount, windows * value)} in all"
    return f"{_describe_amount(amount, a_day)} a day"


def _describe_amount(amount: Amount, value: int) -> str:
    """A value in the asset of the amount, whose code the client chose if it is a receiver's."""
    return describe_amount(value, Asset(quote(amount.asset_code, safe=URL_CHARACTERS), amount.asset_scale))


def _is_hidden(character: str) -> bool:
    if character in JOINERS or character.isspace():
        return False
    return character in BLANKS or unicodedata.category(character) in INVISIBLE_CATEGORIES
