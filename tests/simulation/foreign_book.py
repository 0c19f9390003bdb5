"""The book of the foreign server, with double entries, and its records."""

from collections import Counter
from typing import Any, NamedTuple

import msgspec

from payres.core.protocol.amounts import Asset
from payres.interledger.stream import SharedSecret, StreamPacket
from tests.simulation.currencies import converted

Json = dict[str, Any]


class Account(NamedTuple):
    kind: str
    name: str
    asset: Asset


class Book:
    """What is in each account: of a peer, what is owed to it. All of an asset add up to 0."""

    def __init__(self) -> None:
        self.balances: Counter[Account] = Counter()

    def move(self, payer: Account, payee: Account, amount: int) -> int:
        """Moves an amount of the payer's asset, exchanged if the payee's is another, and returns what arrives."""
        arrives, entries = converted(amount, payer.asset, payee.asset), [(payer, -amount)]
        if payer.asset != payee.asset:
            entries += [(Account("trade", "", payer.asset), amount), (Account("trade", "", payee.asset), -arrives)]
        for account, entry in (*entries, (payee, arrives)):
            self.balances[account] += entry
        return arrives


def amount_of(value: int, asset: Asset) -> Json:
    return {"value": str(value), "assetCode": asset.code, "assetScale": asset.scale}


class Link(NamedTuple):
    """A peer, which may owe `limit`, and lets itself be owed `credit`; `largest` is the largest packet from it."""

    name: str
    asset: Asset
    url: str
    incoming: str
    outgoing: str
    largest: int
    limit: int
    credit: int

    @property
    def account(self) -> Account:
        return Account("peer", self.name, self.asset)


class Taken(NamedTuple):
    """A packet that was fulfilled here. It `is_late` if its sender may think otherwise, by its clock."""

    link: str
    bill: str
    amount: int
    is_late: bool


class Posted(msgspec.Struct):
    """A packet that left for a bill. It `is_known` what became of it if it was answered; what is not true in it is a
    `lie`."""

    link: str
    receiver: str
    amount: int
    lie: str
    is_known: bool = False
    arrived: int | None = None


class Bill(msgspec.Struct):
    """An incoming payment; `value` is None for any amount. It is closed when it is "completed" or "expired"."""

    shown: Json
    account: Account
    payee: Account
    value: int | None
    secret: bytes
    expires_at: int
    received: int = 0
    state: str = "open"
    closes_at: int | None = None

    @property
    def shared(self) -> SharedSecret:
        return SharedSecret(self.secret)

    def told(self, kind: int, sequence: int, arrived: int) -> bytes:
        return self.shared.encrypt_packet(StreamPacket(sequence, kind, arrived))


class Payment(msgspec.Struct):
    """An outgoing payment; before, its quote, while it is "quoted"."""

    shown: Json
    account: Account
    payer: Account
    receive: int
    made_at: int
    client: str = ""
    state: str = "quoted"
    debit: int = 0
    sent: int = 0
    delivered: int = 0
    attempts: int = 0


class Grant(msgspec.Struct):
    """A grant, with the token that it has until it `ends_at`, and what that is managed by."""

    client: str
    access: list[Json]
    secret: str
    made_at: int
    finish: Json = {}
    reference: str = ""
    state: str = "issued"
    token: str = ""
    manage: str = ""
    ends_at: int = 0
