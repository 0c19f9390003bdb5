import pytest

from payres.core.remote.connection import FetchFailed
from payres.core.remote.wallet_addresses import RemoteWallet, fetch_keys, fetch_wallet_address
from payres.core.signatures.jwk import JWK
from tests.core.remote.conftest import Answer, Serve, Site, loopback


def document_of(site: Site, **changes: object) -> dict[str, object]:
    """A wallet address of the site with members changed, and without those that are changed to `...`."""
    document = {
        "id": f"{site.base}/alice",
        "assetCode": "EUR",
        "assetScale": 2,
        "authServer": "https://auth.example/",
        "resourceServer": "https://pay.example",
        **changes,
    }
    return {name: value for name, value in document.items() if value is not ...}


async def wallet_of(site: Site, **changes: object) -> RemoteWallet:
    site.pages["GET /alice"] = Answer(document_of(site, **changes))
    return await fetch_alice(site)


async def fetch_alice(site: Site) -> RemoteWallet:
    async with loopback() as client:
        return await fetch_wallet_address(client, f"{site.base}/alice")


async def test_fetch_wallet_address_returns_what_the_server_says(site: Site) -> None:
    wallet = await wallet_of(site, publicName="Alice", cardService="https://card.example", extra={"a": 1})
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
        ("\u200cمی\u200cخواهم\u200d", "می\u200cخواهم"),
        ("👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧"),
        ("n" * 5000, "n" * 128),
    ],
)
async def test_fetch_wallet_address_cleans_and_cuts_the_public_name(site: Site, said: object, kept: str | None) -> None:
    assert (await wallet_of(site, publicName=said)).public_name == kept


REQUIRED = ("id", "assetCode", "assetScale", "authServer", "resourceServer")


@pytest.mark.parametrize(
    "changes",
    [
        *({name: value} for name in REQUIRED for value in (..., None)),
        *({"assetScale": scale} for scale in (256, -1, "2", 2.5, True)),
        *({"assetCode": code} for code in ("", "E" * 33, "E\nR")),
        {"publicName": 7},
        *(
            {"authServer": url}
            for url in ("ftp://a.example", "https://user@a.example", "https://a.example/" + "a" * 2048)
        ),
        *({"resourceServer": url} for url in ("/pay", "javascript:alert(1)")),
        *({"id": url} for url in ("https://victim.example/alice", "http://127.0.0.1:1/alice", "alice")),
    ],
)
async def test_fetch_wallet_address_fails_for_what_breaks_a_rule(site: Site, changes: dict[str, object]) -> None:
    with pytest.raises(FetchFailed) as caught:
        await wallet_of(site, **changes)
    assert caught.value.reason == "bad_content"


@pytest.mark.parametrize("document", [None, [], "https://wallet.example/alice", 7])
async def test_fetch_wallet_address_fails_for_what_is_no_object(site: Site, document: object) -> None:
    site.pages["GET /alice"] = Answer(document)
    with pytest.raises(FetchFailed) as caught:
        await fetch_alice(site)
    assert caught.value.reason == "bad_content"


async def test_fetch_wallet_address_takes_another_spelling_of_the_origin(site: Site) -> None:
    base = site.base.replace("127.0.0.1", "localhost")
    address = base.replace("http://localhost", "HTTP://LocalHost") + "/wallets/1"
    site.pages["GET /alice"] = Answer(document_of(site, id=address))
    async with loopback() as client:
        assert (await fetch_wallet_address(client, f"{base}/alice")).id == address


# Keys

X = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"  # RFC 8037 appendix A.2
GOOD = {"kid": "key-1", "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": X}


async def keys_of(site: Site, content: object, path: str = "/alice", status: int = 200) -> list[JWK]:
    site.pages[f"GET {path.rstrip('/')}/jwks.json"] = Answer(content, status)
    async with loopback() as client:
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
        ("Cache-Control: max-age=60\r\nAge: old\r\n", 0),
        ("Cache-Control: max-age=60\r\nCache-Control: no-cache\r\n", 0),
        ("Cache-Control: no-store, max-age=60\r\n", 0),
        ('Cache-Control: no-cache="set-cookie"\r\n', 0),
        *((f"Cache-Control: max-age{value}\r\n", 0) for value in ("=0", "", "=-1", "=1e3", f"={'9' * 40}")),
    ],
)
async def test_fetch_keys_tells_how_long_they_may_be_kept(serve: Serve, headers: str, max_age: int | None) -> None:
    port = await serve(f"HTTP/1.1 200 OK\r\n{headers}Content-Length: 11\r\n\r\n".encode() + b'{"keys":[]}')
    async with loopback() as client:
        assert (await fetch_keys(client, f"http://127.0.0.1:{port}/alice")).max_age == max_age


async def test_fetch_keys_asks_below_the_wallet_address(site: Site) -> None:
    for path in ("/alice", "/alice/", "/shops/1", "", "/.well-known/pay"):
        assert await keys_of(site, {"keys": [GOOD]}, path) == [JWK(kid="key-1", x=X)]
        assert site.requests[-1].target == f"{path.rstrip('/')}/jwks.json"


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
    same_kid = {**GOOD, "x": "D0T-qmoZPBSyRDkdjVZSCCtpKXpGWBPMkc2rRVrvwT4"}
    second = {**GOOD, "kid": "key-2", "use": "sig", "exp": 1, "nbf": {"deep": []}}
    document = {"keys": [*others, GOOD, *others, same_kid, second], "next": None, "operator": "example"}
    assert [(key.kid, key.x) for key in await keys_of(site, document)] == [("key-1", X), ("key-2", X)]


@pytest.mark.parametrize("document", [None, [], [GOOD], {}, {"keys": None}, {"keys": {"key-1": GOOD}}, GOOD, b"{", b""])
async def test_fetch_keys_fails_for_what_is_no_key_set(site: Site, document: object) -> None:
    with pytest.raises(FetchFailed) as caught:
        await keys_of(site, document)
    assert (caught.value.reason, caught.value.retryable) == ("bad_content", False)


@pytest.mark.parametrize("address", ["https://wallet.example/alice?x", "https://wallet.example/#alice"])
async def test_fetch_keys_refuses_what_is_no_wallet_address(address: str) -> None:
    async with loopback() as client:
        with pytest.raises(FetchFailed, match="it has a query or a fragment") as caught:
            await fetch_keys(client, address)
    assert not caught.value.retryable
