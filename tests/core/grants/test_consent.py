from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.grants.consent import finish_url
from payres.core.protocol.gnap import interaction_hash


def test_hash_is_that_of_the_rfc_in_standard_base64() -> None:
    """The example of RFC 9635 section 4.2.3, which prints the same digest in base64url without padding."""
    digest = interaction_hash(
        "VJLO6A4CATR0KRO", "MBDOFXG4Y5CVJCX821LH", "4IFWWIKYB2PQ6U56NL1", "https://server.example.com/tx"
    )
    assert digest == "x+gguKWTj8rQf7d7i3w3UhzvuJ5bpOlKyAlVpLxBffY="
    assert digest.rstrip("=").translate(str.maketrans("+/", "-_")) == "x-gguKWTj8rQf7d7i3w3UhzvuJ5bpOlKyAlVpLxBffY"


@pytest.mark.parametrize(
    ("uri", "parameters", "expected"),
    [
        ("https://shop.example", {"a": "1"}, "https://shop.example?a=1"),
        ("https://shop.example/", {"a": "1"}, "https://shop.example/?a=1"),
        ("https://shop.example/done?", {"a": "1"}, "https://shop.example/done?a=1"),
        ("https://shop.example/done?order=7", {"a": "1", "b": "2"}, "https://shop.example/done?order=7&a=1&b=2"),
        ("https://shop.example/done?a=old&x=1", {"a": "1"}, "https://shop.example/done?a=old&x=1&a=1"),
        ("https://shop.example/done?x=1&", {"a": "1"}, "https://shop.example/done?x=1&a=1"),
        ("https://shop.example/a&", {"a": "1"}, "https://shop.example/a&?a=1"),
        ("HTTPS://Shop.Example/?s=%ff;c+%7e|d?#?x", {"a": "1"}, "HTTPS://Shop.Example/?s=%ff;c+%7e|d?&a=1#?x"),
        ("https://shop.example/done?x=1&x=2", {"a": "1"}, "https://shop.example/done?x=1&x=2&a=1"),
        ("https://shop.example/done?empty=&flag", {"a": "1"}, "https://shop.example/done?empty=&flag&a=1"),
        ("https://shop.example/done?q=a%2Fb%26c", {"a": "1"}, "https://shop.example/done?q=a%2Fb%26c&a=1"),
        ("https://shop.example/#/route", {"a": "1"}, "https://shop.example/?a=1#/route"),
        ("http://127.0.0.1:3000/a%20b", {"a": "1"}, "http://127.0.0.1:3000/a%20b?a=1"),
        ("com.example.app:/done", {"a": "1"}, "com.example.app:/done?a=1"),
        ("com.example.app:/done?x=1#y", {"a": "1"}, "com.example.app:/done?x=1&a=1#y"),
        ("https://shop.example/", {"hash": "a+b/c="}, "https://shop.example/?hash=a%2Bb%2Fc%3D"),
    ],
)
def test_finish_url_adds_parameters_and_keeps_the_rest(uri: str, parameters: dict[str, str], expected: str) -> None:
    assert finish_url(uri, parameters) == expected


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(st.lists(st.tuples(names, names)), st.dictionaries(names, names, max_size=3))
def test_finish_url_can_be_read_back(own: list[tuple[str, str]], parameters: dict[str, str]) -> None:
    uri = "https://shop.example/done"
    for name, value in own:
        uri = finish_url(uri, {name: value})
    found = parse_qsl(urlsplit(finish_url(uri, parameters)).query, keep_blank_values=True)
    assert found == [*own, *parameters.items()]
