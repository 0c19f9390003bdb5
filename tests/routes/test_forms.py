import re
from types import SimpleNamespace

import pytest
from starlette.requests import Request

from payres.grants.consent import SESSION_VALUE
from payres.identifiers import SystemIdentifiers
from payres.routes.pages import session_cookie
from payres.urls import Urls

SESSION = "aZ09_-" * 7 + "a"


def with_cookies(*lines: str, base: str = "http://pay.example") -> Request:
    app = SimpleNamespace(state={"context": SimpleNamespace(urls=Urls(base))})
    return Request({"type": "http", "headers": [(b"cookie", line.encode()) for line in lines], "app": app})


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([f"payres_session={SESSION}"], SESSION),
        ([f"a=b; payres_session={SESSION}; c=d"], SESSION),
        ([f"a=b;payres_session={SESSION} ;c"], SESSION),
        (["a=b", f"payres_session={SESSION}"], SESSION),  # a proxy may split the header (RFC 9113 section 8.2.3)
        ([f"payres_session={SESSION[::-1]}; payres_session={SESSION}"], SESSION),
        ([f'payres_session="{SESSION}"'], None),
        ([f"payres_session={SESSION}x"], None),
        ([f"payres_session={SESSION[1:]}"], None),
        ([f"payres_session={SESSION[1:]}é"], None),
        ([f"xpayres_session={SESSION}"], None),
        ([f"__Host-payres_session={SESSION}"], None),
        ([f"PAYRES_SESSION={SESSION}"], None),
        ([f'a="; payres_session={SESSION}'], SESSION),
        (["payres_session"], None),
        ([""], None),
        ([], None),
    ],
)
def test_session_cookie_is_found_among_others_and_nothing_else_is(lines: list[str], found: str | None) -> None:
    assert session_cookie(with_cookies(*lines)) == found


def test_session_cookie_over_https_has_its_prefix() -> None:
    cookies = f"payres_session={SESSION[::-1]}; __Host-payres_session={SESSION}"
    assert session_cookie(with_cookies(cookies, base="https://pay.example")) == SESSION


def test_session_cookie_takes_every_session_that_is_made() -> None:
    assert all(re.fullmatch(SESSION_VALUE, SystemIdentifiers().secret().encode()) for _ in range(100))
