from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.protocol.errors import DomainError
from payres.core.protocol.limits import MAX_URL_LENGTH
from payres.core.protocol.urls import (
    RESERVED_SEGMENTS,
    Urls,
    canonical,
    is_http_url,
    new_wallet_path,
    require_wallet_path,
    with_ascii_host,
)

urls = Urls("https://pay.example")

hosts = st.sampled_from(["pay.example", "PAY.Example", "127.0.0.1", "[::1]", "localhost"])
ports = st.one_of(st.just(""), st.integers(1, 65535).map(lambda port: f":{port}"))
segments = st.text("abcXYZ019-._~", min_size=1, max_size=6).filter(lambda segment: segment not in {".", ".."})
wallet_paths = st.lists(segments, min_size=1, max_size=4).map("/".join)
escapes = st.sampled_from(["%41", "%7e", "%2F", "%2f", "%25", "%2541", "%25%34%31"])
paths = st.lists(st.one_of(segments, escapes, st.builds(str.__add__, segments, escapes)), max_size=4).map(
    lambda parts: "".join(f"/{p}" for p in parts)
)
http_urls = st.builds(
    "{}://{}{}{}{}".format, st.sampled_from(["http", "https", "HTTPS"]), hosts, ports, paths, st.sampled_from(["", "/"])
)


def test_urls_are_built_from_the_base() -> None:
    for built in (urls, Urls("https://pay.example/")):
        assert built.base == "https://pay.example"
        assert built.auth_server == "https://pay.example/"
        assert built.wallet("alice") == "https://pay.example/alice"
        assert built.resource("quotes", "1") == "https://pay.example/quotes/1"
        assert built.host == "pay.example"
    assert (Urls("https://pay.example:8443").host, Urls("http://[::1]:8080").host) == ("pay.example", "::1")


CANONICAL = {
    "https://pay.example/alice": (
        *("https://pay.example/alice", "https://pay.example/alice/", "https://pay.example/alice//"),
        *("https://pay.example:/alice", "https://pay.example:0443/alice", "https://pay.example./alice"),
        *("https://PAY.example.:443/alice", "https://pay.example/alice?a=1#b", "https://pay.example/alice/?"),
        *("https://pay.example/alice#../bob", "https://pay.example/%61lic%65"),
    ),
    "https://pay.example": ("https://pay.example/", "https://pay.example?a=1"),
    "https://pay.example/Alice": ("HTTPS://PAY.example:443/Alice",),
    "http://pay.example": ("http://pay.example:80",),
    "https://pay.example:8443": ("https://pay.example:8443/",),
    "https://pay.example./alice": ("https://pay.example../alice",),
    "https://xn--bcher-kva.example/alice": ("https://b\u00fccher.example/alice", "https://xn--bcher-kva.example/alice"),
    "http://127.0.0.1/a": ("http://127.1/a", "http://0x7f.0.0.1./a"),
    "http://192.168.1.1:81/a": ("http://3232235777:81/a",),
    "http://[::1]/a": ("http://[0:0:0:0:0:0:0:1]/a",),
    "http://[2001:db8::1]/a": ("http://[2001:DB8::0:1]:80/a",),
    "https://pay.example/~alice": ("https://pay.example/%7Ealice",),
    "https://pay.example/a%2Fb%3A": ("https://pay.example/a%2fb%3a",),
    "https://pay.example/%C3%A9": ("https://pay.example/%c3%a9",),
    "https://pay.example/.well-known/pay": ("https://pay.example/.well-known/pay/",),
}


@pytest.mark.parametrize(("url", "normal"), [(url, normal) for normal, spelled in CANONICAL.items() for url in spelled])
def test_normalise_drops_what_makes_no_difference(url: str, normal: str) -> None:
    assert canonical(url) == normal


@pytest.mark.parametrize(
    "url",
    [
        *("https://user@pay.example/alice", "https://user:secret@pay.example/alice", "https://@pay.example/alice"),
        *("https://pay.example:443@evil.example/alice", "https://pay.example\\@evil.example/alice"),
        *("https://pay.example/bob/../alice", "https://pay.example/./alice", "https://pay.example/alice/."),
        *("https://pay.example/alice/..", "https://pay.example/bob/%2e%2E/alice"),
        *("https://pay.example/bob/.%2e/alice", "https://pay.example/%", "https://pay.example/%4"),
        *("https://pay.example/%%341", "https://pay.example/%zz", "https://pay.example/al ice"),
        *("https://pay.example/al\tice", "https://pay.example/alice\n", " https://pay.example/alice"),
        *("http://pay.example:443", "https://pay.example//alice", "https://\u2665.example/alice"),
        *("http://127.0.0.1.example/a", "https://pay.example/%2541", "https://pay.example/a.b/..c/d.."),
        *("http://[::1]:8080/a", "http://pay.example:port/a", "http://[::1/a", "text", "", "/alice"),
        "mailto:a@b.example",
        *("ftp://pay.example/alice", f"https://pay.example/{'x' * MAX_URL_LENGTH}"),
    ],
)
def test_normalise_leaves_what_has_one_spelling_and_what_could_deceive(url: str) -> None:
    assert canonical(url) == url
    assert urls.wallet_path(url) != "alice"


@pytest.mark.parametrize(
    ("base", "url", "is_ours"),
    [
        ("https://pay.example", "https://Pay.Example.:443/alice", True),
        ("https://pay.example:8443", "https://pay.example:8443/alice", True),
        ("https://pay.example:8443", "https://pay.example/alice", False),
        ("https://pay.example", "http://pay.example/alice", False),
        ("https://pay.example", "https://pay.example.org/alice", False),
        ("https://pay.example", "https://localhost/alice", False),
        ("http://127.0.0.1:8080", "http://localhost:8080/alice", True),
        ("http://127.0.0.1:8080", "http://[::1]:8080/alice", True),
        ("http://127.0.0.1:8080", "http://127.0.0.2:8080/alice", False),
        ("http://127.0.0.1:8080", "http://localhost:8081/alice", False),
        ("http://127.0.0.1:8080", "https://localhost:8080/alice", False),
        ("http://localhost", "http://127.0.0.1:80/alice", True),
        ("http://[::1]:8080", "http://localhost:8080/alice", True),
        ("http://localhost.example", "http://localhost/alice", False),
    ],
)
def test_aliases_of_the_base_url_are_ours(base: str, url: str, is_ours: bool) -> None:
    known = Urls(base)
    assert known.is_ours(url) == is_ours
    assert known.wallet_path(url) == ("alice" if is_ours else None)
    assert known.own(url) == (known.wallet("alice") if is_ours else url)
    quote = url.replace("alice", "quotes/1")
    assert known.resource_id("quotes", quote) == ("1" if is_ours else None)


@given(http_urls)
def test_normalise_is_stable(url: str) -> None:
    assert canonical(canonical(url)) == canonical(url) == canonical(f"{url}/")


@given(st.text(max_size=60))
def test_normalise_takes_any_text(text: str) -> None:
    assert isinstance(canonical(text), str)
    assert isinstance(canonical(f"https://{text}"), str)
    assert isinstance(is_http_url(f"https://{text}"), bool)
    assert urls.wallet_path(text) is None or canonical(text).startswith("https://pay.example/")


@pytest.mark.parametrize(
    ("url", "path", "identifier"),
    [
        ("https://pay.example/.well-known/pay", ".well-known/pay", None),
        ("https://pay.example/%41lice?first=1#top", "alice", None),
        ("https://pay.example/alice%2Fbob", "alice%2fbob", None),
        ("https://pay.example", None, None),
        ("https://pay.example.evil.example/alice", None, None),
        ("https://PAY.example:443/%71uotes/%31/?x#y", "quotes/1", "1"),
        ("https://pay.example/quotes/1%2F2", "quotes/1%2f2", "1%2F2"),
        ("https://pay.example/quotes/1/2", "quotes/1/2", None),
        ("https://pay.example/other/1", "other/1", None),
        ("https://pay.example/a/quotes/1", "a/quotes/1", None),
    ],
)
def test_url_here_names_a_wallet_path_or_a_resource(url: str, path: str | None, identifier: str | None) -> None:
    assert (urls.wallet_path(url), urls.resource_id("quotes", url)) == (path, identifier)


@given(wallet_paths)
def test_wallet_path_undoes_wallet(path: str) -> None:
    assert urls.wallet_path(urls.wallet(path.lower())) == path.lower()


@pytest.mark.parametrize(
    ("base", "path", "did"),
    [
        ("https://pay.example", "alice", "did:web:pay.example:alice"),
        ("https://pay.example", "a/b-c._1", "did:web:pay.example:a:b-c._1"),
        ("https://pay.example", "~alice", "did:web:pay.example:%7Ealice"),
        ("https://pay.example", ".well-known/pay", "did:web:pay.example:.well-known:pay"),
        ("http://127.0.0.1:8080", "alice", "did:web:127.0.0.1%3A8080:alice"),
        ("http://[::1]:8080", "alice", "did:web:%5B%3A%3A1%5D%3A8080:alice"),
    ],
)
def test_did_names_the_wallet_in_the_characters_of_a_did(base: str, path: str, did: str) -> None:
    assert Urls(base).did(path) == did


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        ("alice", "alice"),
        ("/Alice/", "alice"),
        ("a/b/c", "a/b/c"),
        ("a-b._~1", "a-b._~1"),
        (".well-known/pay", ".well-known/pay"),
        ("quotes2", "quotes2"),
        ("x" * 200, "x" * 200),
    ],
)
def test_wallet_path_is_stored_in_one_spelling(path: str, clean: str) -> None:
    assert require_wallet_path(path) == new_wallet_path(path) == clean


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("HTTPS://Shop.example:443/\u00fc?\u00fc#\u00fc", "HTTPS://Shop.example:443/\u00fc?\u00fc#\u00fc"),
        (
            "https://B\u00fccher.example:8443/b\u00fccher.example",
            "https://xn--bcher-kva.example:8443/b\u00fccher.example",
        ),
        ("https://b\u00fccher.example", "https://xn--bcher-kva.example"),
        ("http://[::1]/", "http://[::1]/"),
        ("http://[::1]\u00e4/", None),
        ("https://\u2665.example/", None),
        ("/done", None),
    ],
)
def test_host_is_put_into_ascii_and_nothing_else(url: str, expected: str | None) -> None:
    assert with_ascii_host(url) == expected


NO_PATHS = ("", "/", "a b", "a//b", "a/./b", "../a", "a%2Fb", "é", "a?b", "a#b", "a\n", "x" * 201)
SHADOWS = ("quotes/1", "Quotes", "my/quotes", "alice/jwks.json", "alice/did.json", ".well-known/other")


@pytest.mark.parametrize(
    ("clean", "path"),
    [
        *((clean, path) for clean in (require_wallet_path, new_wallet_path) for path in NO_PATHS),
        *((new_wallet_path, path) for path in (*sorted(RESERVED_SEGMENTS), *SHADOWS)),
    ],
)
def test_new_wallet_path_is_a_path_that_shadows_nothing_of_the_api(clean: Callable[[str], str], path: str) -> None:
    with pytest.raises(DomainError) as refusal:
        clean(path)
    assert (refusal.value.status, refusal.value.code) == (400, "invalid_request")
