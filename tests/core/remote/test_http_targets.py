"""URLs as requested, and URLs that are never requested."""

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.protocol.urls import is_http_url
from payres.core.remote.connection import FetchFailed
from payres.core.remote.http import GuardedClient, parse_target
from tests.core.remote.conftest import failure_of
from tests.internet import Internet

URL_PARTS = st.sampled_from(
    ["a", "B", "/", "/", "..", "/./", "/../", "%41", "%zz", "é", "日本", *"?#%~&=;:@[]{}`'\"^|\\<>*!$(,+"]
)
HOSTS = st.sampled_from(
    [
        *("pay.example", "PAY.Example:443", "pay.example:80", "pay.example:", "bücher.example", "faß.example"),
        *("☃.example", "127.0.0.1:8080", "0177.0.0.1", "127.0.0.1.", "\uff11\uff12\uff17.0.0.1"),
        *("127\u30020\u30020\u30021", "a_b.example", "[::1]", "[::1]:80", "[::g]", "[v1.x]", "a..b", "-a.example"),
        *("xn--bcher-kva.example", "ex!ample"),
    ]
)


@given(st.sampled_from(["http", "https"]), HOSTS, st.lists(URL_PARTS, max_size=8))
def test_url_is_asked_for_as_httpx2_would(scheme: str, host: str, rest: list[str]) -> None:
    """An oracle that many rely on; of the client only what `is_http_url` lets through is asked for."""
    url = f"{scheme}://{host}/{''.join(rest)}"
    try:
        target = parse_target(url)
    except FetchFailed:
        if is_http_url(url):
            with pytest.raises(httpx2.InvalidURL):
                httpx2.URL(url)
        return
    expected = httpx2.URL(url)
    server = target.server
    assert (server.scheme, server.host) == (expected.scheme, expected.raw_host.decode())
    assert (server.authority, target.path) == (expected.netloc.decode(), expected.raw_path.decode())


@pytest.mark.parametrize(
    "url",
    [
        *("", "wallet.example", "//wallet.example/", "ftp://wallet.example/", "file:///etc/passwd", "https://"),
        *("http://wallet.example/", "http://1.1.1.1/", "https:///path", "https://user@wallet.example/"),
        *("https://user:word@wallet.example/", "https://:word@wallet.example/", "https://@wallet.example/"),
        *("https://wallet.example\\@127.0.0.1/", "https://wallet.example:99999/", "https://wallet.example:port/"),
        *("https://wallet.example/a b", "https://wallet.example/\r\nX: y", "https://wallet.example/" + "a" * 2048),
        *("https://[::1/", "https://[::1]x/", "https://[::1]80/", "https://a[::1]/", "https://[::1]]/"),
        *("https://0177.0.0.01/", "https://\uff11\uff12\uff17.0.0.1/"),
    ],
)
async def test_bad_url_is_refused_without_a_lookup(internet: Internet, url: str) -> None:
    internet.point("wallet.example", ["127.0.0.1"])
    failure = await failure_of(GuardedClient(False), url)
    assert (failure.reason, failure.retryable, failure.unsent) == ("unreachable", False, True)
    assert (internet.lookups, internet.connections) == ({}, [])
