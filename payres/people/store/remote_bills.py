"""What other servers publish of their bills, as the consent pages of grants to pay these have shown it."""

import msgspec

from payres.core.protocol.amounts import Asset
from payres.core.protocol.urls import ROOT_WALLET_PATH, canonical
from payres.core.protocol.visible import ShownUrl, visible_url
from payres.core.store.rows import Table

BILL = "/incoming-payments/"  # the path of incoming payments, whose URLs name no payee


class RemoteBillRecord(msgspec.Struct, frozen=True):
    """A row of `remote_bill`, which goes with its grant and never changes: consent is to what it says.

    `name` is the payee's as its server gives it, `address` the wallet address, or the URL of the bill if its wallet
    address cannot be trusted. `remaining` (decimal text) is what the bill takes, None without a limit.
    """

    grant_id: str
    name: str | None
    address: str
    purpose: str
    remaining: str | None
    asset_code: str
    asset_scale: int

    @property
    def asset(self) -> Asset:
        return Asset(self.asset_code, self.asset_scale)

    @property
    def url(self) -> ShownUrl:
        return visible_url(self.address)

    @property
    def called(self) -> str:
        """The name, or else the address without its scheme, or the host of a bill."""
        return called(self.name, self.address)

    @property
    def named(self) -> str:
        """The name with the host that gives it, or else the host."""
        return f"{self.name} ({self.url.host})" if self.name else self.url.host

    @property
    def amount(self) -> int | None:
        return None if self.remaining is None else int(self.remaining)


def called(name: str | None, address: str) -> str:
    """What a payee is called: by its name, or else the address without its scheme, or the host of a bill."""
    url = visible_url(address)
    return name or (url.host if BILL in url.after else url.host + url.after)


REMOTE_BILLS = Table(RemoteBillRecord, "remote_bill")


def asks_for_itself(client: str, receiver: str | None) -> bool:
    """Whether the client is the server of the bill itself, as where a payer pays on its payment page."""
    server = (receiver or "").partition(BILL)[0]
    return canonical(client) == canonical(f"{server}/{ROOT_WALLET_PATH}")
