"""Why a payment failed, in the reader's words."""

import re
from typing import Final

from markupsafe import Markup

from payres.pages.language import Language, marked

# What the payment says of its failure, for those who can act on it, and what that comes to.
WORDS: Final = tuple(
    (re.compile(said, re.IGNORECASE), sentence)
    for said, sentence in (
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


def failure_of(language: Language, failure: str | None) -> Markup:
    """The reason in a few words."""
    found = next((sentence for said, sentence in WORDS if said.search(failure or "")), None)
    return language.say(found) if found else language.say("it did not get through")
