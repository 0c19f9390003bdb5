"""`payres api-key`: the keys of programs that use the operator's API."""

from collections.abc import Sequence

import click

from payres.admin import api_keys as endpoints
from payres.admin import representations
from payres.admin.wire import ApiKey, CreatedApiKey
from payres.cli.commands import Group
from payres.cli.options import Time
from payres.cli.session import labelled, lists, writes
from payres.operator import api_keys
from payres.store.operators import list_api_keys
from payres.store.work import Work


@click.group("api-key", cls=Group)
def api_key() -> None:
    """A program shows its key as `Authorization: Bearer <key>`. Scopes say what it may do."""


def _line(key: ApiKey) -> str:
    until = f", until {key.expires_at}" if key.expires_at else ""
    used = f"last used {key.last_used_at}" if key.last_used_at else "never used"
    return f"{key.id}  {key.state}{until}  {key.name}: {', '.join(key.scopes)}; {used}"


def _revoked(key: ApiKey) -> str:
    return labelled(("API key", key.id), ("name", key.name), ("revoked", key.revoked_at or "(no)"))


@api_key.command(example='payres api-key create "Order book" --scope payments:read --scope wallets:read')
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    required=True,
    multiple=True,
    type=click.Choice(list(api_keys.SCOPES)),
    metavar="SCOPE",
    help="What the key is for, such as payments:read. Repeat.",
)
@click.option("--expires", type=Time(), metavar="TIME", help="When it ends, such as 2027-01-31; never when left out.")
@writes(lambda created: created.key)
def create(work: Work, name: str, scopes: tuple[str, ...], expires: int | None) -> CreatedApiKey:
    """Create a key and print it once."""
    record, text = api_keys.create_api_key(work, name, scopes, expires)
    return representations.created_api_key(work, record, text)


@api_key.command("list", example="payres api-key list")
@lists("apiKeys", _line, "There are no API keys yet; `payres api-key create` makes one")
def list_all(work: Work) -> Sequence[ApiKey]:
    """List keys, newest first.

    Each with its scopes and when it was last used.
    """
    return [representations.api_key(work, one) for one in list_api_keys(work)]


@api_key.command(example="payres api-key revoke 0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11")
@click.argument("id")
@writes(_revoked)
def revoke(work: Work, id: str) -> ApiKey:
    """End a key at once. ID is the one in `payres api-key list`, or the part of the key between its underscores."""
    return endpoints.revoke(work, id)
