"""The answers of a sandbox: its line, and those of its control API that are of one thing. Their names are those of the
schemas."""

import msgspec
from msgspec import UNSET, UnsetType


class Wallet(msgspec.Struct):
    address: str
    asset_code: str
    asset_scale: int
    balance: str


class ClientKey(msgspec.Struct):
    """What a client signs with; `private_key` is PKCS#8 PEM."""

    wallet_address: str
    kid: str
    private_key: str


class Webhook(msgspec.Struct):
    id: str
    url: str
    secret: str


class Line(msgspec.Struct):
    """What the command prints; `webhook` with --webhook only."""

    base_url: str
    control_url: str
    control_token: str
    wallets: dict[str, Wallet]
    client: ClientKey
    peers: "list[Line]"
    webhook: Webhook | UnsetType = UNSET


class State(Line, kw_only=True):
    now: str
    generation: int


class Reset(msgspec.Struct):
    """The number of resets."""

    generation: int


class SetKey(msgspec.Struct):
    wallet_address: str
    kid: str


class DecidedGrant(msgspec.Struct):
    """`redirect` is where the browser would go, or null."""

    grant: str
    redirect: str | None


class Clock(msgspec.Struct):
    now: str
    frozen: bool


class MovedClock(Clock):
    """`settled` is false if what became due took more than five seconds."""

    settled: bool
