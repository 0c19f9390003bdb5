"""From where somebody comes, as it is stored with sessions and sign-ins, and what they call a browser."""

from typing import Final

from starlette.requests import Request

from payres.accounts.store.sign_ins import Seen
from payres.core.process.rate_limiter import UNREADABLE, address_of
from payres.html.language import marked

A_BROWSER: Final = marked("A browser")
# Parts of a User-Agent in the order in which they decide: most programs also name those that they descend from.
PROGRAMS: Final = {
    "Edg": "Edge",
    "OPR/": "Opera",
    "SamsungBrowser/": "Samsung Internet",
    "Vivaldi/": "Vivaldi",
    "Firefox/": "Firefox",
    "FxiOS/": "Firefox",
    "CriOS/": "Chrome",
    "Chrome/": "Chrome",
    "Safari/": "Safari",
}
SYSTEMS: Final = {
    "iPhone": "iPhone",
    "iPad": "iPad",
    "Android": "Android",
    "Windows": "Windows",
    "CrOS": "ChromeOS",
    "Macintosh": "Mac",
    "Linux": "Linux",
}


def seen_of(request: Request) -> Seen:
    """From where a request comes."""
    address, name = address_of(request.scope), browser_name(request.headers.get("user-agent", ""))
    return Seen(None if address == UNREADABLE else address, name)


def browser_name(user_agent: str) -> str:
    """What somebody calls a browser, such as `Firefox on Linux`, by its User-Agent; A_BROWSER without a known part.

    No text of the header itself is in it, so that it is short and safe to show.
    """
    browser, system = (
        next((name for part, name in table.items() if part in user_agent), None) for table in (PROGRAMS, SYSTEMS)
    )
    return f"{browser or A_BROWSER} on {system}" if system else browser or A_BROWSER
