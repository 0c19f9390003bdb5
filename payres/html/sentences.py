"""Sentences for errors and failed payments: the problem, then what to do."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec
from markupsafe import Markup

from payres.core.grants.access import granted_access
from payres.core.grants.spending_limits import Interval, Spending
from payres.core.protocol.clock import DAY, HOUR, MINUTE, SECOND
from payres.core.protocol.errors import DomainError, TooManyRequests
from payres.core.protocol.gnap import Access, Subject
from payres.core.protocol.urls import canonical
from payres.core.protocol.visible import visible_url
from payres.html.language import Language, is_sentence, marked

# By reason or code.
SENTENCES: Final[Mapping[str, str]] = {
    "wrong_password": marked("This is not the password of this wallet. Try again."),
    "kept_out": marked("New browsers are kept out for a day. Sign in in a browser that you use."),
    "signed_out": marked("You are signed out by now, so nothing was done. Sign in again."),
    "csrf": marked("This page is too old. Nothing was done; try again. If it comes back, allow cookies."),
    "cross_site": marked("This form came from another site. Nothing was done."),
    "unavailable": marked("The server is busy. Nothing was done; try again in a moment."),
    "internal_error": marked("Something went wrong here. The fault is not yours. Try again in a while."),
    "method_not_allowed": marked("This address does not take what your browser sent. Nothing was done."),
    "unsupported_media_type": marked("This address does not take what your browser sent. Nothing was done."),
    "unknown_interaction": marked("There is no such request for consent; the app can ask again."),
    "invalid_interaction": marked("This request has expired; the app can ask again."),
    "inactive_wallet": marked("This wallet is not active, so nothing can be allowed for it now."),
    "not_found": marked("There is nothing at this address. It may be mistyped, or what was here has ended."),
}
OTHER_REQUEST: Final = marked("This is not the request that you were shown. Nothing was decided; please read it again")

# In failure reasons: what other servers said, in quotes, and URLs.
QUOTED: Final = re.compile(r"(?<!\w)(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")(?!\w)|https?://\S+")
# Why a payment was not made, by the reason or code of the error.
REASONS: Final[Mapping[str, str]] = {
    "wallet": marked("you had too little"),
    "late": marked("this server was not running then"),
    "restored": marked("this server was restored from a copy, and it may have been paid before"),
    "stopped": marked("it was stopped before"),
    "too_dear": marked("it would have taken more than you allowed"),
    "other_currency": marked("the wallet there has another currency now"),
    "no_wallet": marked("there is no wallet at the address any more"),
    "invalid_request": marked("one of the two wallets is closed"),
    "unreachable": marked("nobody answered"),
    "no_path": marked("no way for money led there"),
    "liquidity": marked("this server could not change so much"),
}
SHORT: Final = r"cannot take so much|the last answer was T04"  # of failures for lack of credit or liquidity on the way
# Patterns of technical failure reasons without that, and what owners read instead.
FAILURES: Final = tuple(
    (re.compile(said, re.IGNORECASE), sentence)
    for said, sentence in (
        (SHORT, marked("so much cannot be taken there now; try less")),
        (r"^the payment was refused with", marked("it was refused on the way")),
        (r"^the receiver (?:closed|has taken|takes|counts|said)", marked("the receiver did not take it")),
        (r"certificate of", marked("the certificate of its server is not trusted")),
        (
            r"^nothing has arrived|(?:did|do)(?:n't| not) answer|no answer|could not be reached|within [0-9.]+ seconds"
            r"|^(?:the connection to|tls with) \S+ failed|take a connection|has no (?:public )?address|broke off$",
            marked("nobody answered"),
        ),
        (r"too slowly", marked("the receiver took it too slowly")),
        (r"expired|completed", marked("the receiver takes no more money")),
        (r"rounding|too small|however small", marked("the amount is too small for the way there")),
        (r"exchange rate|the minimum of|delivers nothing", marked("the exchange rate changed")),
    )
)


def problem_of(language: Language, error: DomainError) -> str:
    """The sentence for an error, or else its own message in English."""
    if isinstance(error, TooManyRequests):
        span = language.span(error.retry_after * SECOND)
        return language.say("There were too many attempts. Try again in {span}.", span=span)
    sentence, own = SENTENCES.get(error.details.get("reason", "")) or SENTENCES.get(error.code), str(error)
    if sentence:
        return language.say(sentence)
    return ended(language.say(own) if is_sentence(own) else own)


def ended(text: str) -> str:
    """The text with a full stop, unless it has an end."""
    return text if text.endswith((".", "…", "!", "?")) else text + "."


def capital(text: str) -> str:
    """The text with its first letter in upper case, unless it begins with the name of a setting."""
    return text if "_" in text.partition(" ")[0] else text[:1].upper() + text[1:]


def failure_of(language: Language, failure: str | None, host: str = "") -> Markup:
    """Why a payment to `host` failed or was not made, in a few words: by a reason or code, or what its sender said."""
    found = REASONS.get(failure or "") or _pattern_of(failure)
    if found:
        return language.say(found)
    return language.say("{host} did not say why", host=host) if host else language.say("it did not get through")


def _pattern_of(failure: str | None) -> str | None:
    own = QUOTED.sub("", failure or "")
    return next((sentence for said, sentence in FAILURES if said.search(own)), None)


def is_silent(failure: str | None) -> bool:
    """Whether it failed because nobody answered."""
    return _pattern_of(failure) == REASONS["unreachable"]


def is_short(failure: str | None) -> bool:
    """Whether it failed because less may pass."""
    return re.search(SHORT, QUOTED.sub("", failure or "")) is not None


# Months, microseconds, and the words for one window of one unit or several.
LENGTHS: Final = (
    (12, 0, marked("a year"), marked("every {number} years")),
    (1, 0, marked("a month"), marked("every {number} months")),
    (0, 7 * DAY, marked("a week"), marked("every {number} weeks")),
    (0, DAY, marked("a day"), marked("every {number} days")),
    (0, HOUR, marked("an hour"), marked("every {number} hours")),
    (0, MINUTE, marked("a minute"), marked("every {number} minutes")),
    (0, SECOND, marked("a second"), marked("every {number} seconds")),
)
# Actions other than spending, after "It may".
ACTIONS: Final[Mapping[tuple[str, str], str]] = {
    ("outgoing-payment", "list-all"): marked("see all payments, also of other apps"),
    ("outgoing-payment", "read-all"): marked("see all payments, also of other apps"),
    ("outgoing-payment", "list"): marked("see its own payments"),
    ("outgoing-payment", "read"): marked("see its own payments"),
    ("incoming-payment", "create"): marked("ask to be paid"),
    ("incoming-payment", "list-all"): marked("see all requests, also of other apps"),
    ("incoming-payment", "read-all"): marked("see all requests, also of other apps"),
    ("incoming-payment", "list"): marked("see its own requests"),
    ("incoming-payment", "read"): marked("see its own requests"),
    ("incoming-payment", "complete"): marked("close its own requests"),
    ("quote", "create"): marked("ask for prices"),
    ("quote", "read-all"): marked("see all prices, also of other apps"),
    ("quote", "read"): marked("see its own prices"),
}
# Two of these that follow each other, in one.
TOGETHER: Final[Mapping[tuple[str, str], str]] = {
    ("see its own requests", "close its own requests"): marked("see and close its own requests"),
    ("ask for prices", "see its own prices"): marked("ask for prices, and see those"),
}
READING_ALL: Final = frozenset({"list-all", "read-all"})
READING: Final = READING_ALL | {"list", "read"}


def amount_words(language: Language, spending: Spending, value: int | None) -> Markup:
    """`USD 12.50`, `what it takes for the receiver to get USD 12.50`, or `any amount`."""
    if value is None or spending.asset is None:
        return language.say("any amount")
    money = language.money(value, spending.asset)
    if not spending.fixes_receive:
        return money
    return language.say("what it takes for the receiver to get {amount}", amount=money)


def limit_words(language: Language, spending: Spending) -> Markup:
    """`up to USD 50.00 a month, 13 times`."""
    amount = amount_words(language, spending, spending.value)
    if spending.value is None and spending.interval is None:
        return amount
    if spending.interval is None or spending.times == 1:
        return language.say("up to {amount}", amount=amount)
    every = length_words(language, spending.interval)
    if spending.times is None:
        return language.say("up to {amount} {every}", amount=amount, every=every)
    return language.say("up to {amount} {every}, {times} times", amount=amount, every=every, times=spending.times)


def spending_sentence(language: Language, spending: Spending, name: str | None = None) -> Markup:
    """`It may pay up to USD 5.00 a month, to anyone it chooses.` `name` replaces the URL of the only receiver."""
    what = limit_words(language, spending)
    if spending.receiver is None:
        return language.say("It may pay {what}, to anyone it chooses.", what=what)
    receiver = name or visible_url(spending.receiver).text
    return language.say("It may pay {what}, only to {receiver}.", what=what, receiver=receiver)


def length_words(language: Language, interval: Interval) -> str:
    """The length of a window: `a month`, `every 2 weeks`.

    If no unit divides it, it is rounded down in a smaller unit, so that windows never seem rarer than they are.
    """
    months, microseconds = interval.months, interval.microseconds
    for of_months, unit, one, many in LENGTHS:
        length, whole = (of_months, months) if of_months else (unit, interval.mean_length)
        is_whole = whole % length == 0 and (not of_months or not microseconds) and (of_months or not months)
        if whole >= length and (is_whole or (unit == DAY and months) or unit == SECOND):
            number = whole // length
            return language.say(one) if number == 1 else language.say(many, number=number)
    return language.say("many times a second")


class May(NamedTuple):
    """What a grant permits in one wallet or in all: a sentence, which goes on with a list if there is one."""

    begins: Markup
    what: Sequence[Markup] = ()

    @property
    def sentence(self) -> Markup:
        """All of it on a line."""
        return Markup("{} {}.").format(self.begins, Markup("; ").join(self.what)) if self.what else self.begins


def other_words(language: Language, access: str, subject: str | None, own: str, name: str = "") -> Sequence[May]:
    """What a grant permits other than spending; `own` is the reader's wallet address, of the wallet called `name`."""
    found: dict[Markup, list[str]] = {}
    for item in granted_access(access):
        kind, where = str(item.__struct_config__.tag), found.setdefault(_in_wallet(language, item, own, name), [])
        where += [said for (of, action), said in ACTIONS.items() if of == kind and action in item.actions]
    groups = [May(begins, [*map(language.say, _joined(what))]) for begins, what in found.items() if what]
    if subject:
        whose = visible_url(msgspec.json.decode(subject, type=Subject).sub_ids[0].id).text
        groups.append(May(language.say("It learns that you own {address}.", address=whose)))
    return groups


def _joined(what: Sequence[str]) -> Sequence[str]:
    """Each once, and two that belong together in one."""
    once = list(dict.fromkeys(what))
    for (first, second), both in TOGETHER.items():
        if first in once and second in once:
            once[once.index(first)] = both
            once.remove(second)
    return once


def what_it_reads(access: str, own: str) -> Literal["payments", "other"] | None:
    """What access lets read in the reader's wallet `own`: all its payments, or something else; None if it lets do more,
    or in other wallets."""
    items = granted_access(access)
    whose = {canonical(item.identifier) if item.identifier else "" for item in items}
    if whose != {canonical(own)} or not all(set(item.actions) <= READING for item in items):
        return None
    seen = {str(item.__struct_config__.tag) for item in items if READING_ALL & set(item.actions)}
    return "payments" if "outgoing-payment" in seen else "other"


def _in_wallet(language: Language, item: Access, own: str, name: str) -> Markup:
    if not item.identifier:
        return language.say("In any wallet here it may:")
    is_own = name and own and canonical(item.identifier) == canonical(own)
    return language.say("In {wallet} it may:", wallet=name if is_own else visible_url(item.identifier).text)
