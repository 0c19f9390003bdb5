"""Clients that are frozen: their grants pay nothing, and get no quotes, until an operator unfreezes them."""

from collections.abc import Sequence
from typing import Annotated, Final

from payres.core.grants.clients import identify
from payres.core.protocol.errors import InvalidClient, InvalidRequest, WrongState, require
from payres.core.protocol.wire import Resource
from payres.core.store.grants import FROZEN, FrozenRecord
from payres.core.store.work import Environment, Work
from payres.operator.declared.declarations import ACCESS, CommandLine, Listing, OperationForm, operation
from payres.operator.declared.inputs import Name, said
from payres.operator.declared.shapes import Column, Shape, Time, represent


def client_identity(work: Work | Environment, text: str) -> str:
    """What a client is known by: its wallet address as it is compared, or the thumbprint of its key."""
    if "://" not in text:
        return text
    try:
        return identify(work.urls, text).identity
    except InvalidClient as error:
        raise InvalidRequest(str(error), field="client") from error


ClientName = Annotated[
    Name, said("The wallet address of the client, or the thumbprint of its key.", typed=client_identity)
]
NONE: Final = "No client is frozen"


class FrozenClient(Resource, frozen=True, kw_only=True):
    client: str
    frozen_at: Time


def frozen_client(work: Work, record: FrozenRecord) -> FrozenClient:
    return represent(FrozenClient, record)


def require_frozen(work: Work, client: str) -> FrozenRecord:
    """Raises NotFound."""
    found = FROZEN.get(work, client_identity(work, client))
    return require(found, f"The client {client} is not frozen", "`payres client list` shows those that are")


CLIENT: Final = Shape(
    frozen_client,
    Column("Client", "client", "long", section="clients"),
    Column("Frozen (UTC)", lambda one: one.frozen_at, "time"),
    read=require_frozen,
    page="/clients/{client}",
    gone="It is not frozen any more",
)


@operation(
    "GET /clients grants:read",
    CLIENT,
    command=CommandLine("client list"),
    listing=Listing(
        *("clients", NONE, "Frozen clients"),
        menu="Grants",
        about="Their grants pay nothing. What they may do otherwise goes on.",
    ),
)
def list_clients(work: Work) -> Sequence[FrozenRecord]:
    """List the clients that are frozen, the last one first."""
    return sorted(FROZEN.list(work), key=lambda one: one.frozen_at, reverse=True)


@operation(
    "PUT /clients/{client}/freeze grants:write",
    CLIENT,
    command=CommandLine("client freeze URL", "https://shop.example/app", text="{client} pays nothing any more"),
    form=OperationForm(
        "Freeze it", title="Freeze a client", lists="/clients", done="{client} pays nothing any more", because=ACCESS
    ),
    told="froze the",
    carries=("frozenClient", "clients, frozen"),
)
def freeze(work: Work, client: ClientName) -> FrozenRecord:
    """Let the grants of a client pay nothing. They get no quotes either, until it is unfrozen.

    It keeps its grants and tokens, with which it may see what it saw before. Payments that have begun go on.
    """
    identity = client_identity(work, client)
    if FROZEN.get(work, identity) is not None:
        raise WrongState(f"The client {identity} is frozen already")
    FROZEN.insert(work, FrozenRecord(identity, work.now))
    return FROZEN.by_id(work, identity)


@operation(
    "DELETE /clients/{client}/freeze grants:write",
    CLIENT,
    command=CommandLine("client unfreeze URL", "https://shop.example/app", text="{client} may pay again"),
    form=OperationForm("Unfreeze", CLIENT, done="{client} may pay again", back="/clients", because=ACCESS),
    told="unfroze the",
)
def unfreeze(work: Work, client: ClientName) -> FrozenRecord:
    """Let the grants of a frozen client pay again."""
    found = require_frozen(work, client)
    FROZEN.delete(work, client=found.client)
    return found
