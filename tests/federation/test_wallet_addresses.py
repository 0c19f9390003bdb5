import pytest

from payres.federation.failures import FetchFailed
from payres.federation.http import GuardedClient
from payres.federation.wallet_addresses import RemoteWallet, fetch_wallet_address
from tests.federation.site import Answer, Site


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
    async with GuardedClient(allow_private_hosts=True) as client:
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
        ("n" * 5000, "n" * 128),
    ],
)
async def test_fetch_wallet_address_cleans_and_cuts_the_public_name(site: Site, said: object, kept: str | None) -> None:
    assert (await wallet_of(site, publicName=said)).public_name == kept


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
async def test_fetch_wallet_address_fails_for_what_breaks_a_rule(site: Site, changes: dict[str, object]) -> None:
    with pytest.raises(FetchFailed) as caught:
        await wallet_of(site, **changes)
    assert caught.value.reason == "bad_content"


@pytest.mark.parametrize("document", [None, [], "https://wallet.example/alice", 7])
async def test_fetch_wallet_address_fails_for_what_is_no_object(site: Site, document: object) -> None:
    site.pages["GET /alice"] = Answer(document)
    async with GuardedClient(allow_private_hosts=True) as client:
        with pytest.raises(FetchFailed) as caught:
            await fetch_wallet_address(client, f"{site.base}/alice")
    assert caught.value.reason == "bad_content"


async def test_fetch_wallet_address_takes_another_spelling_of_the_origin(site: Site) -> None:
    base = site.base.replace("127.0.0.1", "localhost")
    address = base.replace("http://localhost", "HTTP://LocalHost") + "/wallets/1"
    site.pages["GET /alice"] = Answer(document_of(site, id=address))
    async with GuardedClient(allow_private_hosts=True) as client:
        assert (await fetch_wallet_address(client, f"{base}/alice")).id == address
