"""A frozen client pays nothing until it is unfrozen; what it may do otherwise goes on."""

from contextlib import closing
from typing import Any

import pytest

from payres.core.protocol.errors import InvalidRequest, NotFound, WrongState
from payres.core.signatures.jwk import thumbprint
from payres.interledger.node import node_of
from payres.operator import clients
from tests.conftest import Refused
from tests.helpers import Json, client_with_key, receiver_of, usd
from tests.instance import Instance

FROZEN: Any = {"status": 403, "code": "insufficient_access", "reason": "frozen_client"}


def test_frozen_client_pays_nothing_until_it_is_unfrozen(payres: Instance, refused: Refused) -> None:
    shop, alice = payres.new_client("frozen-shop"), payres.wallet("alice")
    quoting = shop.grant({"type": "quote", "actions": ["create", "read"], "identifier": alice})
    paying = shop.grant({"type": "outgoing-payment", "actions": ["create", "read"], "identifier": alice})
    quotes = [shop.post("/quotes", _quoted(alice, receiver_of(payres, 100)), quoting).json() for _ in range(2)]
    assert _pay(shop, alice, quotes[0], paying).status_code == 201
    payres.write(lambda work: clients.freeze(work, shop.wallet_address))
    balance = payres.balance("alice")
    refused(_pay(shop, alice, quotes[1], paying), **FROZEN)
    refused(shop.post("/quotes", _quoted(alice, receiver_of(payres, 100)), quoting), **FROZEN)
    assert shop.get(f"/quotes/{quotes[1]['id'].rpartition('/')[2]}", quoting).status_code == 200, "it sees what it saw"
    assert payres.balance("alice") == balance
    payres.write(lambda work: clients.unfreeze(work, shop.wallet_address.upper().replace("HTTP", "http")))
    assert _pay(shop, alice, quotes[1], paying).status_code == 201
    payres.check_ledger()


@pytest.mark.parametrize("kind", ["quote", "outgoing-payment"])
def test_no_other_server_is_asked_for_a_frozen_client(
    payres: Instance, refused: Refused, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    asked = list[str]()

    async def fetch(url: str, **_: Any) -> None:
        asked.append(url)

    monkeypatch.setattr(node_of(payres.context).receivers, "fetch_open", fetch)
    shop, alice = payres.new_client(f"frozen-{kind}"), payres.wallet("alice")
    token = shop.grant({"type": kind, "actions": ["create"], "identifier": alice})
    payres.write(lambda work: clients.freeze(work, shop.wallet_address))
    receiver = "https://elsewhere.example/incoming-payments/1"
    body = {"walletAddress": alice, "debitAmount": usd(100)}
    body |= {"receiver": receiver, "method": "ilp"} if kind == "quote" else {"incomingPayment": receiver}
    refused(shop.post(f"/{kind}s", body, token), **FROZEN)
    assert asked == []


def test_client_is_known_by_its_key_too(payres: Instance, refused: Refused) -> None:
    with closing(client_with_key(payres)) as shop:
        token = shop.grant({"type": "quote", "actions": ["create"], "identifier": payres.wallet("alice")})
        payres.write(lambda work: clients.freeze(work, thumbprint(shop.jwk)))
        refused(shop.post("/quotes", _quoted(payres.wallet("alice"), receiver_of(payres, 100)), token), **FROZEN)


def test_clients_are_frozen_once_and_listed(payres: Instance) -> None:
    """Also one that was never here; it is named as its address is compared."""
    payres.write(lambda work: clients.freeze(work, "https://Never.example/app/"))
    with pytest.raises(WrongState, match="frozen already"):
        payres.write(lambda work: clients.freeze(work, "https://never.example/app"))
    first = payres.read(clients.list_clients)[0]
    assert first.client == "https://never.example/app"
    payres.write(lambda work: clients.unfreeze(work, first.client))
    with pytest.raises(NotFound, match="is not frozen"):
        payres.write(lambda work: clients.unfreeze(work, first.client))
    with pytest.raises(InvalidRequest, match="wallet address"):
        payres.write(lambda work: clients.freeze(work, "ftp://never.example"))
    assert first not in payres.read(clients.list_clients)


def _quoted(wallet: str, receiver: str) -> Json:
    return {"walletAddress": wallet, "receiver": receiver, "method": "ilp"}


def _pay(shop: Any, wallet: str, quote: Json, token: str) -> Any:
    return shop.post("/outgoing-payments", {"walletAddress": wallet, "quoteId": quote["id"]}, token)
