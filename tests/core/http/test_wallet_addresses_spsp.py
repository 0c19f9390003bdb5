"""SPSP: the wallet address as a payment pointer."""

import base64
import re
from collections.abc import Iterator

import httpx2
import pytest

from payres.interledger.node import node_of
from payres.interledger.oer import decode_reply, encode_packet
from payres.interledger.packets import Fulfill
from payres.operator import wallets
from tests.conftest import Refused
from tests.instance import Instance, run_instance
from tests.interledger.node import Sender
from tests.works import add_usd_peer

SPSP = "application/spsp4+json"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with run_instance(tmp_path_factory.mktemp("spsp") / "payres.db", ilp_address="test.here") as instance:
        instance.write(lambda work: add_usd_peer(work, "peer", "10000.00"))
        instance.create_wallet(".well-known/pay")
        yield instance
        instance.check_ledger()


def ask(client: httpx2.Client, url: str, accept: str = SPSP) -> httpx2.Response:
    return client.get(url, headers={"Accept": accept})


@pytest.mark.parametrize("path", ["alice", "alice/", "ALICE", ".well-known/pay"])
def test_details_are_those_of_rfc_9(server: Instance, anonymous: httpx2.Client, path: str) -> None:
    answer = ask(anonymous, f"{server.base_url}/{path}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == SPSP
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["vary"] == "Accept"
    assert answer.headers["access-control-allow-origin"] == "*"
    body = answer.json()
    assert body.keys() == {"destination_account", "shared_secret"}
    assert re.fullmatch(r"test\.here\.[A-Za-z0-9_-]+", body["destination_account"])
    assert len(base64.b64decode(body["shared_secret"], validate=True)) == 32


def test_each_sender_gets_an_address_of_its_own(server: Instance, anonymous: httpx2.Client) -> None:
    found = [ask(anonymous, server.wallet("alice")).json() for _ in range(10)]
    assert len({one["destination_account"] for one in found}) == 10
    assert len({one["shared_secret"] for one in found}) == 10


def test_money_goes_straight_to_the_wallet(server: Instance, anonymous: httpx2.Client) -> None:
    server.create_wallet("tips")
    body = ask(anonymous, server.wallet("tips")).json()
    opened = node_of(server.context).credentials.open(body["destination_account"])
    assert opened is not None
    prepare = Sender(body["destination_account"], opened.shared_secret, server.clock).prepare(123)
    # The secret that was given away is the one that the server reads with.
    secret = base64.b64decode(body["shared_secret"])
    assert Fulfill(type(opened.shared_secret)(secret).fulfillment(prepare.data)).fits(prepare.condition)
    headers = {"Authorization": "Bearer in", "Content-Type": "application/octet-stream"}
    answer = anonymous.post(f"{server.base_url}/ilp", content=encode_packet(prepare), headers=headers)
    assert isinstance(decode_reply(answer.content), Fulfill)
    assert server.balance("tips") == "1.23"


@pytest.mark.parametrize(
    "accept",
    [SPSP, f"{SPSP}, application/json", f"application/json;q=0.5, {SPSP}", "Application/SPSP4+JSON", f"{SPSP};q=0.1"],
)
def test_whoever_names_spsp_gets_it(server: Instance, anonymous: httpx2.Client, accept: str) -> None:
    assert ask(anonymous, server.wallet("alice"), accept).headers["content-type"] == SPSP


@pytest.mark.parametrize("accept", ["*/*", "", "application/json", "application/*", f"application/json, {SPSP};q=0"])
def test_everybody_else_gets_the_wallet_address(server: Instance, anonymous: httpx2.Client, accept: str) -> None:
    answer = ask(anonymous, server.wallet("alice"), accept)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["vary"] == "Accept"
    assert answer.json()["id"] == server.wallet("alice")


def test_keys_know_nothing_of_spsp(server: Instance, anonymous: httpx2.Client, refused: Refused) -> None:
    refused(ask(anonymous, f"{server.wallet('alice')}/jwks.json"), 406, "not_acceptable")


def test_wallet_that_is_not_there_cannot_be_paid(server: Instance, anonymous: httpx2.Client, refused: Refused) -> None:
    refused(ask(anonymous, server.wallet("nobody")), 404, "not_found")
    server.create_wallet("closed")
    server.write(lambda tx: wallets.deactivate(tx, "closed"))
    refused(ask(anonymous, server.wallet("closed")), 404, "not_found")


def test_other_methods_are_refused(server: Instance, anonymous: httpx2.Client, refused: Refused) -> None:
    refused(anonymous.post(server.wallet("alice"), headers={"Accept": SPSP}), 405, "method_not_allowed")
    head = anonymous.head(server.wallet("alice"), headers={"Accept": SPSP})
    assert (head.status_code, head.headers["content-type"], head.content) == (200, SPSP, b"")
