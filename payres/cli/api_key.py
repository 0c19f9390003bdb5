"""`payres api-key`: the keys of programs that use the operator's API."""

import click
import msgspec

from payres.admin import api_keys as endpoints
from payres.admin import representations
from payres.admin.wire import ApiKey, CreatedApiKey
from payres.cli.groups import Group
from payres.cli.options import Time
from payres.cli.session import Session, labelled, with_session
from payres.operator import api_keys
from payres.store.api_keys import list_api_keys
from payres.store.work import Work


@click.group("api-key", cls=Group)
def api_key() -> None:
    """A program shows its key as `Authorization: Bearer <key>`. Scopes say what it may do."""


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
@with_session
def create(session: Session, name: str, scopes: tuple[str, ...], expires: int | None) -> None:
    """Create a key and print it once."""

    def unit(work: Work) -> CreatedApiKey:
        record, text = api_keys.create_api_key(work, name, scopes, expires)
        return CreatedApiKey(**msgspec.structs.asdict(representations.api_key(work, record)), key=text)

    created = session.write(unit)
    session.show(created, created.key)


@api_key.command("list", example="payres api-key list")
@with_session
def list_all(session: Session) -> None:
    """List keys, newest first.

    Each with its scopes and when it was last used.
    """
    found = session.read(lambda work: [representations.api_key(work, one) for one in list_api_keys(work)])
    session.show_list("apiKeys", found, _line, "There are no API keys yet; `payres api-key create` makes one")


@api_key.command(example="payres api-key revoke 0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11")
@click.argument("id")
@with_session
def revoke(session: Session, id: str) -> None:
    """End a key at once. ID is the one in `payres api-key list`, or the part of the key between its underscores."""
    revoked = session.write(lambda work: endpoints.revoke(work, id))
    session.show(
        revoked, labelled(("API key", revoked.id), ("name", revoked.name), ("revoked", revoked.revoked_at or "(no)"))
    )


def _line(key: ApiKey) -> str:
    until = f", until {key.expires_at}" if key.expires_at else ""
    used = f"last used {key.last_used_at}" if key.last_used_at else "never used"
    return f"{key.id}  {key.state}{until}  {key.name}: {', '.join(key.scopes)}; {used}"
