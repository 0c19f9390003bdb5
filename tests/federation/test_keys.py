import pytest

from payres.federation.failures import FetchFailed
from payres.federation.http import GuardedClient
from payres.federation.keys import fetch_keys
from payres.signatures.jwk import JWK
from tests.federation.conftest import Serve
from tests.federation.site import Answer, Site

X = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"  # RFC 8037 appendix A.2
GOOD = {"kid": "key-1", "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": X}


async def keys_of(site: Site, content: object, path: str = "/alice", status: int = 200) -> list[JWK]:
    site.pages[f"GET {path.rstrip('/')}/jwks.json"] = Answer(content, status)
    async with GuardedClient(allow_private_hosts=True) as client:
        return (await fetch_keys(client, f"{site.base}{path}")).keys


@pytest.mark.parametrize(
    ("headers", "max_age"),
    [
        ("", None),
        ("Cache-Control: public\r\n", None),
        ("Cache-Control: public, max-age=10\r\n", 10),
        ('Cache-Control: MAX-AGE="10"\r\n', 10),
        ("Cache-Control: max-age=60\r\nAge: 50\r\n", 10),
        ("Cache-Control: max-age=60\r\nAge: 61\r\n", 0),
        ("Cache-Control: max-age=0\r\n", 0),
        ("Cache-Control: max-age=60\r\nCache-Control: no-cache\r\n", 0),
        ("Cache-Control: no-store, max-age=60\r\n", 0),
        ('Cache-Control: no-cache="set-cookie"\r\n', 0),
        ("Cache-Control: max-age\r\n", 0),
        ("Cache-Control: max-age=-1\r\n", 0),
        ("Cache-Control: max-age=1e3\r\n", 0),
        ("Cache-Control: max-age=60\r\nAge: old\r\n", 0),
        (f"Cache-Control: max-age={'9' * 40}\r\n", 0),
    ],
)
async def test_fetch_keys_tells_how_long_they_may_be_kept(serve: Serve, headers: str, max_age: int | None) -> None:
    port = await serve(f"HTTP/1.1 200 OK\r\n{headers}Content-Length: 11\r\n\r\n".encode() + b'{"keys":[]}')
    async with GuardedClient(allow_private_hosts=True) as client:
        assert (await fetch_keys(client, f"http://127.0.0.1:{port}/alice")).max_age == max_age


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/alice", "/alice/jwks.json"),
        ("/alice/", "/alice/jwks.json"),
        ("/shops/1", "/shops/1/jwks.json"),
        ("", "/jwks.json"),
        ("/.well-known/pay", "/.well-known/pay/jwks.json"),
    ],
)
async def test_fetch_keys_asks_below_the_wallet_address(site: Site, path: str, target: str) -> None:
    assert await keys_of(site, {"keys": [GOOD]}, path) == [JWK(kid="key-1", x=X)]
    assert [request.target for request in site.requests] == [target]


async def test_fetch_keys_passes_over_what_it_does_not_understand(site: Site) -> None:
    others: list[object] = [
        None,
        "key",
        [],
        {},
        {"kid": "rsa", "kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {**GOOD, "kid": "curve", "crv": "X25519"},
        {**GOOD, "kid": "short", "x": X[:-1]},
        {**GOOD, "kid": "secret", "d": X},
        {**GOOD, "kid": "cipher", "use": "enc"},
        {**GOOD, "kid": 7},
        {**GOOD, "kid": "x" * 257},
    ]
    second = {**GOOD, "kid": "key-2", "use": "sig", "exp": 1, "nbf": {"deep": []}}
    document = {"keys": [*others, GOOD, *others, second], "next": None, "operator": "example"}
    assert [key.kid for key in await keys_of(site, document)] == ["key-1", "key-2"]


async def test_fetch_keys_keeps_the_first_key_of_a_kid(site: Site) -> None:
    other = "D0T-qmoZPBSyRDkdjVZSCCtpKXpGWBPMkc2rRVrvwT4"
    found = await keys_of(site, {"keys": [GOOD, {**GOOD, "x": other}]})
    assert found == [JWK(kid="key-1", x=X)]


async def test_fetch_keys_keeps_32_keys(site: Site) -> None:
    document = {"keys": [{}, *({**GOOD, "kid": f"key-{n}"} for n in range(100))]}
    assert [key.kid for key in await keys_of(site, document)] == [f"key-{n}" for n in range(32)]


async def test_fetch_keys_finds_no_keys_in_an_empty_set(site: Site) -> None:
    assert await keys_of(site, {"keys": []}) == []


@pytest.mark.parametrize("document", [None, [], [GOOD], {}, {"keys": None}, {"keys": {"key-1": GOOD}}, GOOD, b"{", b""])
async def test_fetch_keys_fails_for_what_is_no_key_set(site: Site, document: object) -> None:
    with pytest.raises(FetchFailed) as caught:
        await keys_of(site, document)
    assert caught.value.reason == "bad_content"


async def test_fetch_keys_tells_the_status_of_a_missing_key_set(site: Site) -> None:
    with pytest.raises(FetchFailed) as caught:
        await keys_of(site, {}, status=404)
    assert caught.value.reason == "bad_status"
    assert "answered 404" in caught.value.sentence


@pytest.mark.parametrize("address", ["https://wallet.example/alice?x", "https://wallet.example/#alice", "alice", ""])
async def test_fetch_keys_refuses_what_is_no_wallet_address(address: str) -> None:
    async with GuardedClient(allow_private_hosts=False) as client:
        with pytest.raises(FetchFailed) as caught:
            await fetch_keys(client, address)
    assert caught.value.reason == "bad_url"
