"""A payres as the programs from npm see it that are its Interledger peers, and what is to be said of it afterwards."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from payres.core.signatures.jwk import private_pem
from payres.core.store.outgoing_payments import OutgoingRecord
from payres.interledger.sending.timing import Timing
from payres.interledger.store.peers import PeerRecord
from payres.operator import peers
from tests.helpers import Json, last_segment
from tests.instance import Instance, run_instance
from tests.interledger.network import EUR, USD, add_liquidity, ended, hurried, set_rate, wallet_money

RATE = "0.92"  # EUR for a USD
PASSWORD = "correct horse battery staple"
NOWHERE = "http://127.0.0.1:9/ilp"


class Node:
    """An instance that many tests share: each has wallets and peers of its own."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    def open_wallet(self, asset: str = "USD", deposit: str | None = None, name: str = "wallet") -> str:
        """Opens a wallet with two decimals whose path no other test has; returns its wallet address."""
        path, shown = f"{name}-{mark()}", name.capitalize()
        return self.instance.create_wallet(path, asset, name=shown, deposit=deposit, password=PASSWORD)

    def open_app(self, name: str, folder: Path) -> Json:
        """A client: what a scenario needs to sign in its name."""
        client, file = self.instance.new_client(name, kid=f"{name}-key"), folder / "private.pem"
        file.write_bytes(private_pem(client.private_key))
        return {"walletAddress": client.wallet_address, "privateKey": str(file), "kid": f"{name}-key"}

    def add_peer(self, name: str, url: str = NOWHERE, asset: str = "USD", **terms: Any) -> Json:
        """Adds the peer test.`name`, in two decimals; returns the settings with which a program sends as that peer.

        `token` is the one that it wants to see; other terms are those of operator.peers.add_peer.
        """
        token = secrets.token_urlsafe()
        new: dict[str, Any] = dict(
            name=name,
            ilp_address=f"test.{name}",
            asset_code=asset,
            asset_scale=2,
            url=url,
            outgoing_token=terms.pop("token", "unused"),
            incoming_token=token,
            **{"credit_limit": "10000000.00", **terms},
        )
        self.instance.write(lambda tx: peers.add_peer(tx, **new))
        return {"url": f"{self.instance.base_url}/ilp", "token": token, "sourceAsset": {"code": asset, "scale": 2}}

    def peer(self, name: str) -> PeerRecord:
        """The peer as it stands, with its balance."""
        return self.instance.read(lambda tx: peers.require_peer(tx, name))

    def balance(self, wallet_address: str) -> int:
        """What a wallet with two decimals holds, in its smallest unit."""
        return wallet_money(self.instance, last_segment(wallet_address))[0]

    def read(self, payment: Json) -> Json:
        """A payment that was created before, as a client reads it now."""
        client, url = self.instance.client, payment["id"]
        kind = url.split("/")[-2].removesuffix("s")
        token = client.grant({"type": kind, "actions": ["read-all"], "identifier": payment["walletAddress"]})
        answer = client.get(url, token)
        assert answer.status_code == 200, answer.text
        read: Json = answer.json()
        return read

    def ended(self, payment: Json) -> OutgoingRecord:
        """The outgoing payment as it is stored when it has ended."""
        return ended(self.instance, payment).record


@contextmanager
def run_node(database: Path, ilp_address: str = "test.node", **settings: Any) -> Iterator[Node]:
    """Runs a node that exchanges USD and EUR. Its timeouts are those of servers in use; it soon retries what failed."""
    with run_instance(database, ilp_address=ilp_address, **settings) as instance:
        set_rate("USD", "EUR", RATE, instance)
        for asset in (EUR, USD):
            add_liquidity(instance, asset)
        usual = Timing()
        hurried(
            instance,
            probe_timeout=usual.probe_timeout,
            idle_timeout=usual.idle_timeout,
            close_timeout=usual.close_timeout,
        )
        yield Node(instance)
        instance.check_ledger()


def mark() -> str:
    """A name that no other test has."""
    return secrets.token_hex(4)
