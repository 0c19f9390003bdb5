"""Sentences for errors and failed payments: the problem, then what to do."""

import re
from collections.abc import Mapping
from typing import Final

from markupsafe import Markup

from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import DomainError, TooManyRequests
from payres.html.language import Language, marked

# By reason or code.
SENTENCES: Final[Mapping[str, str]] = {
    "wrong_password": marked("This is not the password of this wallet. Try again."),
    "signed_out": marked("You are signed out by now, so nothing was done. Sign in again."),
    "csrf": marked(
        "This form belongs to an earlier visit, or your browser takes no cookies. Nothing was done; try again."
    ),
    "cross_site": marked("This form came from another site. Nothing was done."),
    "unavailable": marked("The server is busy. Nothing was done; try again in a moment."),
    "internal_error": marked("Something went wrong here. The fault is not yours. Try again in a while."),
    "method_not_allowed": marked("This address does not take what your browser sent. Nothing was done."),
    "unsupported_media_type": marked("This address does not take what your browser sent. Nothing was done."),
    "unknown_interaction": marked("There is no such request for consent; the app can ask again."),
    "invalid_interaction": marked("This request has expired; the app can ask again."),
    "not_found": marked("There is nothing at this address. It may be mistyped, or what was here has ended."),
}


# Messages of errors that pages show translated.
CLOSED_WALLET: Final = marked("This wallet is not active, so nothing can be allowed for it now")
OTHER_REQUEST: Final = marked("This is not the request that you were shown. Nothing was decided; please read it again")

# Patterns of technical failure reasons, and what owners read instead.
FAILURES: Final = tuple(
    (re.compile(said, re.IGNORECASE), sentence)
    for said, sentence in (
        (r"certificate of", marked("the certificate of its server is not trusted")),
        (
            r"nothing has arrived|did(?:n't| not) answer|no answer|could not be reached|within",
            marked("nobody answered"),
        ),
        (r"too slowly", marked("the receiver took it too slowly")),
        (r"expired|completed", marked("the receiver takes no more money")),
        (r"rounding|too small|however small", marked("the amount is too small for the way there")),
        (r"exchange rate|the minimum of|delivers nothing", marked("the exchange rate changed")),
        (r"the receiver (?:closed|has taken|takes|counts|said)", marked("the receiver did not take it")),
        (r"was refused with|takes no packet", marked("it was refused on the way")),
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
    return (language.say(own) if own in (CLOSED_WALLET, OTHER_REQUEST) else own) + "."


def failure_of(language: Language, failure: str | None) -> Markup:
    """Why a payment failed, in a few words."""
    found = next((sentence for said, sentence in FAILURES if said.search(failure or "")), None)
    return language.say(found) if found else language.say("it did not get through")
