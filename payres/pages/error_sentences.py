"""What errors say to people on pages: what is so, then what to do, in the reader's language."""

from collections.abc import Mapping
from typing import Final

from payres.clock import SECOND
from payres.errors import DomainError, TooManyRequests
from payres.pages.language import Language, marked

# By code, and where one code has several, by code and reason.
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
    "not_found": marked("There is nothing at this address. It may be mistyped, or what was here has ended."),
}


# What rules say of a request for consent, in their own words.
OWN: Final = (
    marked("This wallet is not active, so nothing can be allowed for it now."),
    marked("This is not the request that you were shown. Nothing was decided; please read it again."),
    marked("This request has expired; the app can ask again."),
    marked("There is no such request for consent; the app can ask again."),
)


def problem_of(language: Language, error: DomainError) -> str:
    """The sentence for an error; its own, in English, where there is none."""
    reason = (error.details or {}).get("reason", "")
    sentence = SENTENCES.get(reason) or SENTENCES.get(error.code)
    if isinstance(error, TooManyRequests):
        span = language.span(error.retry_after * SECOND)
        return language.say("There were too many attempts. Try again in {span}.", span=span)
    own = f"{error}."
    return language.say(sentence or own) if sentence or own in OWN else own
