import re
from types import SimpleNamespace

import pytest
from starlette.requests import Request

from payres.accounts.cookies import browser_of
from payres.accounts.sessions import COOKIE_VALUE
from payres.core.protocol.identifiers import new_secret
from payres.core.protocol.urls import Urls

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
    assert browser_of(with_cookies(*lines)).session == found


def test_session_cookie_over_https_has_its_prefix() -> None:
    cookies = f"payres_session={SESSION[::-1]}; __Host-payres_session={SESSION}"
    assert browser_of(with_cookies(cookies, base="https://pay.example")).session == SESSION


@pytest.mark.parametrize(
    ("cookies", "known"),
    [
        (f"payres_known_1={SESSION}", {1: SESSION}),
        (f"payres_known_12={SESSION}; payres_session={SESSION}; payres_known_1={SESSION[::-1]}", None),
        (f"payres_known_1={SESSION[::-1]}; payres_known_1={SESSION}", {1: SESSION}),
        (f"__Host-payres_known_1={SESSION}", {}),
        (f"payres_known_={SESSION}", {}),
        (f"payres_known_-1={SESSION}", {}),
        (f"payres_known_1x={SESSION}", {}),
        (f"payres_known_{'9' * 20}={SESSION}", {}),
        (f"payres_known_1={SESSION}x", {}),
        (f"xpayres_known_1={SESSION}", {}),
    ],
)
def test_wallets_that_know_the_browser_are_read_each_from_its_cookie(
    cookies: str, known: dict[int, str] | None
) -> None:
    expected = {12: SESSION, 1: SESSION[::-1]} if known is None else known
    assert browser_of(with_cookies(cookies)).known == expected
    secure = cookies.replace("__Host-", "").replace("payres_", "__Host-payres_")
    if not cookies.startswith("__Host-"):
        assert browser_of(with_cookies(secure, base="https://pay.example")).known == expected


def test_cookies_take_every_secret_that_is_made() -> None:
    assert all(re.fullmatch(COOKIE_VALUE, new_secret().encode()) for _ in range(100))
