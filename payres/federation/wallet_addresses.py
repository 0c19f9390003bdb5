"""Wallet addresses on other servers."""

from typing import Annotated

import msgspec
from msgspec import Meta

from payres.federation.failures import FetchFailed
from payres.federation.http import GuardedClient
from payres.federation.targets import origin_of
from payres.limits import MAX_URL_LENGTH
from payres.urls import is_http_url

MAX_NAME_LENGTH = 128

_Url = Annotated[str, Meta(max_length=MAX_URL_LENGTH)]


class RemoteWallet(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A wallet address as its server describes it (Open Payments, wallet address server). Texts are bounded."""

    id: _Url
    public_name: str | None = None
    asset_code: Annotated[str, Meta(min_length=1, max_length=32)]
    asset_scale: Annotated[int, Meta(ge=0, le=255)]
    auth_server: _Url
    resource_server: _Url


async def fetch_wallet_address(client: GuardedClient, url: str) -> RemoteWallet:
    """The wallet address at a URL. Raises FetchFailed.

    Its `id` may be spelled differently than `url` but must be on the same origin: a server speaks only for its own
    wallets.
    """
    document = await client.get_json(url)
    try:
        wallet = msgspec.convert(document, RemoteWallet)
    except msgspec.ValidationError as error:
        raise FetchFailed("bad_content", f"{url} is not a wallet address: {error}") from error
    for member, value in (
        ("id", wallet.id),
        ("authServer", wallet.auth_server),
        ("resourceServer", wallet.resource_server),
    ):
        if not is_http_url(value):
            raise FetchFailed("bad_content", f"{url} is not a wallet address: its {member} is not an http or https URL")
    if origin_of(wallet.id) != origin_of(url):
        raise FetchFailed("bad_content", f"{url} names a wallet address on another server as its id")
    if not wallet.asset_code.isprintable():
        raise FetchFailed("bad_content", f"{url} is not a wallet address: its assetCode is not printable")
    return msgspec.structs.replace(wallet, public_name=_cleaned(wallet.public_name))


def _cleaned(name: str | None) -> str | None:
    """The name without characters that could disguise it, such as controls and marks that change the writing
    direction."""
    printable = "".join(character for character in name or "" if character.isprintable())
    return printable[:MAX_NAME_LENGTH].strip() or None
