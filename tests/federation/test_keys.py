import asyncio
from typing import Any

import msgspec
import pytest

from payres.federation.failures import FetchFailed
from payres.federation.http import GuardedClient
from payres.federation.keys import RemoteWallet, fetch_keys, fetch_wallet_address
from payres.signatures.jwk import JWK

X = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"  # RFC 8037 appendix A.2
GOOD = {"kid": "key-1", "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": X}


class Site:
    """One page at one loopback port; notes what is asked for."""

    def __init__(self, document: object, status: str = "200 OK") -> None:
        self.body = document if isinstance(document, bytes) else msgspec.json.encode(document)
        self.status = status
        self.targets: list[str] = []

    async def __call__(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        self.targets.append(head.split(b" ")[1].decode())
        writer.write(f"HTTP/1.1 {self.status}\r\nContent-Length: {len(self.body)}\r\n\r\n".encode() + self.body)


async def keys_of(serve: Any, site: Site, path: str = "/alice") -> list[JWK]:
    port = await serve(site)
    async with GuardedClient(allow_private_hosts=True) as client:
        return (await fetch_keys(client, f"http://127.0.0.1:{port}{path}")).keys


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
async def test_fetch_keys_tells_how_long_they_may_be_kept(serve: Any, headers: str, max_age: int | None) -> None:
    port = await serve(f"HTTP/1.1 200 OK\r\n{headers}Content-Length: 11\r\n\r\n".encode() + b'{"keys":[]}')
    async with GuardedClient(allow_private_hosts=True) as client:
        assert (await fetch_keys(client, f"http://127.0.0.1:{port}/alice")).max_age == max_age


async def wallet_of(serve: Any, **changes: object) -> RemoteWallet:
    document: dict[str, object] = {}
    site = Site(document)
    port = await serve(site)
    base = f"http://127.0.0.1:{port}"
    document |= {
        "id": f"{base}/alice",
        "assetCode": "EUR",
        "assetScale": 2,
        "authServer": "https://auth.example/",
        "resourceServer": "https://pay.example",
        **changes,
    }
    site.body = msgspec.json.encode({name: value for name, value in document.items() if value is not ...})
    async with GuardedClient(allow_private_hosts=True) as client:
        return await fetch_wallet_address(client, f"{base}/alice")


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
async def test_fetch_keys_asks_below_the_wallet_address(serve: Any, path: str, target: str) -> None:
    site = Site({"keys": [GOOD]})
    assert await keys_of(serve, site, path) == [JWK(kid="key-1", x=X)]
    assert site.targets == [target]


async def test_fetch_keys_passes_over_what_it_does_not_understand(serve: Any) -> None:
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
    assert [key.kid for key in await keys_of(serve, Site(document))] == ["key-1", "key-2"]


async def test_fetch_keys_keeps_the_first_key_of_a_kid(serve: Any) -> None:
    other = "D0T-qmoZPBSyRDkdjVZSCCtpKXpGWBPMkc2rRVrvwT4"
    found = await keys_of(serve, Site({"keys": [GOOD, {**GOOD, "x": other}]}))
    assert found == [JWK(kid="key-1", x=X)]


async def test_fetch_keys_keeps_32_keys(serve: Any) -> None:
    document = {"keys": [{}, *({**GOOD, "kid": f"key-{n}"} for n in range(100))]}
    assert [key.kid for key in await keys_of(serve, Site(document))] == [f"key-{n}" for n in range(32)]


async def test_fetch_keys_finds_no_keys_in_an_empty_set(serve: Any) -> None:
    assert await keys_of(serve, Site({"keys": []})) == []


@pytest.mark.parametrize("document", [None, [], [GOOD], {}, {"keys": None}, {"keys": {"key-1": GOOD}}, GOOD, b"{", b""])
async def test_fetch_keys_fails_for_what_is_no_key_set(serve: Any, document: object) -> None:
    with pytest.raises(FetchFailed) as caught:
        await keys_of(serve, Site(document))
    assert caught.value.reason == "bad_content"


async def test_fetch_keys_tells_the_status_of_a_missing_key_set(serve: Any) -> None:
    with pytest.raises(FetchFailed) as caught:
        await keys_of(serve, Site({}, "404 Not Found"))
    assert caught.value.reason == "bad_status"
    assert "answered 404" in caught.value.sentence


@pytest.mark.parametrize("address", ["https://wallet.example/alice?x", "https://wallet.example/#alice", "alice", ""])
async def test_fetch_keys_refuses_what_is_no_wallet_address(address: str) -> None:
    async with GuardedClient(allow_private_hosts=False) as client:
        with pytest.raises(FetchFailed) as caught:
            await fetch_keys(client, address)
    assert caught.value.reason == "bad_url"


async def test_fetch_wallet_address_returns_what_the_server_says(serve: Any) -> None:
    wallet = await wallet_of(serve, publicName="Alice", cardService="https://card.example", extra={"a": 1})
    assert wallet.id.endswith("/alice")
    assert (wallet.public_name, wallet.asset_code, wallet.asset_scale) == ("Alice", "EUR", 2)
    assert (wallet.auth_server, wallet.resource_server) == ("https://auth.example/", "https://pay.example")


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (..., None),
        (None, None),
        ("", None),
        (" \u202e ", None),
        ("Zo\u00eb \u5e97 & S\u00f6hne", "Zo\u00eb \u5e97 & S\u00f6hne"),
        ("pay\u202egnp.exe\r\n\x00", "paygnp.exe"),
        ("n" * 5000, "n" * 128),
    ],
)
async def test_fetch_wallet_address_cleans_and_cuts_the_public_name(serve: Any, said: object, kept: str | None) -> None:
    assert (await wallet_of(serve, publicName=said)).public_name == kept


@pytest.mark.parametrize(
    "changes",
    [
        *({name: ...} for name in ("id", "assetCode", "assetScale", "authServer", "resourceServer")),
        *({name: None} for name in ("id", "assetCode", "assetScale", "authServer", "resourceServer")),
        {"assetScale": 256},
        {"assetScale": -1},
        {"assetScale": "2"},
        {"assetScale": 2.5},
        {"assetScale": True},
        {"assetCode": ""},
        {"assetCode": "E" * 33},
        {"assetCode": "E\nR"},
        {"publicName": 7},
        {"authServer": "ftp://auth.example"},
        {"authServer": "https://user@auth.example"},
        {"authServer": "https://auth.example/" + "a" * 2048},
        {"resourceServer": "/pay"},
        {"resourceServer": "javascript:alert(1)"},
        {"id": "https://victim.example/alice"},
        {"id": "http://127.0.0.1:1/alice"},
        {"id": "alice"},
    ],
)
async def test_fetch_wallet_address_fails_for_what_breaks_a_rule(serve: Any, changes: dict[str, object]) -> None:
    with pytest.raises(FetchFailed) as caught:
        await wallet_of(serve, **changes)
    assert caught.value.reason == "bad_content"


@pytest.mark.parametrize("document", [None, [], "https://wallet.example/alice", 7])
async def test_fetch_wallet_address_fails_for_what_is_no_object(serve: Any, document: object) -> None:
    port = await serve(Site(document))
    async with GuardedClient(allow_private_hosts=True) as client:
        with pytest.raises(FetchFailed) as caught:
            await fetch_wallet_address(client, f"http://127.0.0.1:{port}/alice")
    assert caught.value.reason == "bad_content"


async def test_fetch_wallet_address_takes_another_spelling_of_the_origin(serve: Any) -> None:
    site = Site({})
    port = await serve(site)
    site.body = msgspec.json.encode(
        {
            "id": f"HTTP://LocalHost:{port}/wallets/1",
            "assetCode": "EUR",
            "assetScale": 2,
            "authServer": "https://auth.example/",
            "resourceServer": "https://pay.example",
        }
    )
    async with GuardedClient(allow_private_hosts=True) as client:
        wallet = await fetch_wallet_address(client, f"http://localhost:{port}/alice")
    assert wallet.id == f"HTTP://LocalHost:{port}/wallets/1"
