import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.visible import MAX_NAME_LENGTH, visible_name, visible_url


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Super Shop", "Super Shop"),
        ("  Super \r\n\t Shop  ", "Super Shop"),
        ("a\u2028b\u2029c\x85d", "a b c d"),
        ("evil\u202etxt.exe\u202c", "eviltxt.exe"),
        ("\u2066Shop\u2069\u200f\u200e\ufeff\u00ad", "Shop"),
        ("Shop\x00\x1b[31m", "Shop[31m"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("\u200b\u200d\u3164\u2800", None),
        ("\u0301", None),
        ("   ", None),
        ("", None),
        (None, None),
        ("https://shop.example/pay", None),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 199 + "…"),
    ],
)
def test_visible_name_keeps_what_can_be_seen(name: str | None, shown: str | None) -> None:
    assert visible_name(name, "https://shop.example/pay") == shown


@given(st.text(max_size=400))
def test_visible_name_is_short_and_on_one_line(name: str) -> None:
    shown = visible_name(name, None)
    if shown is not None:
        assert 0 < len(shown) <= MAX_NAME_LENGTH
        assert not {unicodedata.category(c) for c in shown if c not in "\u200c\u200d"} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
        assert shown == shown.strip()


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://shop.example/pay", ("https://", "shop.example", "/pay")),
        ("http://http/http", ("http://", "http", "/http")),
        ("http://127.0.0.1:8080", ("http://", "127.0.0.1:8080", "")),
        ("https://[::1]:1/a?b=c#d", ("https://", "[::1]:1", "/a?b=c#d")),
        ("https://paypаl.example/", ("https://", "payp%D0%B0l.example", "/")),
        ("https://a.example/\u202egpj", ("https://", "a.example", "/%E2%80%AEgpj")),
        ("https://a.example/%20x\\<>", ("https://", "a.example", "/%20x%5C%3C%3E")),
        ("com.example.app:/done", ("", "com.example.app", ":/done")),
        ("com.example.app://bank.example/", ("", "com.example.app", "://bank.example/")),
    ],
)
def test_visible_url_stresses_the_host_in_ascii(url: str, parts: tuple[str, str, str]) -> None:
    shown = visible_url(url)
    assert (shown.before, shown.host, shown.after) == parts
    assert shown.text == "".join(parts)
