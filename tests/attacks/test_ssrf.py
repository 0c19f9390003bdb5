"""Server-side request forgery: URLs by which a client would make the server send requests inside its own network."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from tests.attacks.conftest import Trap
from tests.helpers import Json, usd
from tests.instance import Instance, run_instance
from tests.signing_client import Client

QUOTE = {"type": "quote", "actions": ["create"]}

# Every spelling of loopback, with the port of the trap; that nothing connects shows that none of them leads there.
LOOPBACK = {
    "name": "localhost",
    "dotted": "127.0.0.1",
    "another of the /8": "127.1.2.3",
    "short": "127.1",
    "decimal": "2130706433",
    "octal": "0177.0.0.1",
    "hexadecimal": "0x7f000001",
    "zero": "0.0.0.0",
    "zero in short": "0",
    "full-width digits": "\uff11\uff12\uff17.0.0.1",
    "full stop of other scripts": "127\u30020\u30020\u30021",
    "trailing point": "127.0.0.1.",
    "IPv6": "[::1]",
    "IPv6 unspecified": "[::]",
    "v4-mapped": "[::ffff:127.0.0.1]",
    "v4-mapped in hexadecimal": "[::ffff:7f00:1]",
    "v4-compatible": "[::127.0.0.1]",
    "NAT64": "[64:ff9b::7f00:1]",
    "6to4": "[2002:7f00:1::]",
    "escaped": "%31%32%37.0.0.1",
}
# Where clouds keep credentials: never asked, not even by a server that may ask private addresses.
METADATA = {
    "dotted": "169.254.169.254",
    "decimal": "2852039166",
    "octal": "0251.0376.0251.0376",
    "hexadecimal": "0xa9.0xfe.0xa9.0xfe",
    "v4-mapped": "[::ffff:169.254.169.254]",
    "v4-mapped in hexadecimal": "[::ffff:a9fe:a9fe]",
    "NAT64": "[64:ff9b::a9fe:a9fe]",
    "link-local IPv6": "[fe80::1]",
    "zone": "[fe80::1%25lo]",
}


def as_client(instance: Instance, origin: str) -> tuple[int, Json]:
    """The server would fetch the key set of who asks."""
    answer = instance.client.request_grant(QUOTE, client=f"{origin}/shop")
    return answer.status_code, answer.json()["error"]


def as_receiver(instance: Instance, origin: str) -> tuple[int, Json]:
    """The server would read the incoming payment that is to be paid."""
    client, receiver = instance.client, f"{origin}/incoming-payments/1"
    answer = ask_for_quote(client, client.grant(QUOTE), instance.wallet("alice"), receiver)
    return answer.status_code, answer.json()["error"]


def ask_for_quote(client: Client, token: str, wallet: str, receiver: str, value: int = 10) -> httpx2.Response:
    """The answer to a request for a quote, to send so many cents."""
    body = {"walletAddress": wallet, "receiver": receiver, "method": "ilp", "debitAmount": usd(value)}
    return client.post("/quotes", body, token)


def as_payment(instance: Instance, origin: str) -> tuple[int, Json]:
    """The same, without a quote."""
    token = instance.client.grant(
        {"type": "outgoing-payment", "actions": ["create"], "identifier": instance.wallet("alice")}
    )
    receiver = f"{origin}/incoming-payments/1"
    body = {"walletAddress": instance.wallet("alice"), "incomingPayment": receiver, "debitAmount": usd(1)}
    answer = instance.client.post("/outgoing-payments", body, token)
    return answer.status_code, answer.json()["error"]


WAYS_IN = [as_client, as_receiver, as_payment]
Way = Callable[[Instance, str], tuple[int, Json]]


@pytest.mark.parametrize("way", WAYS_IN)
@pytest.mark.parametrize("host", LOOPBACK.values(), ids=LOOPBACK.keys())
def test_ssrf_to_loopback(guarded: Instance, trap: Trap, way: Way, host: str) -> None:
    for scheme in ("https", "http"):
        status, error = way(guarded, f"{scheme}://{host}:{trap.port}")
        assert status in {400, 401}, error
    assert not trap.taken


@pytest.mark.parametrize("way", WAYS_IN)
@pytest.mark.parametrize("host", METADATA.values(), ids=METADATA.keys())
def test_ssrf_to_the_metadata_of_a_cloud(guarded: Instance, shared: Instance, way: Way, host: str) -> None:
    """That it was refused unasked shows in the sentence: one that was tried would time out, or answer."""
    for instance in (guarded, shared):
        status, error = way(instance, f"https://{host}")
        assert status in {400, 401}
        told = ("no public address", "never asked", "not an absolute", "must be", "parsed", "has no address")
        assert any(words in error["details"]["hint"] for words in told), error


def test_ssrf_by_a_name_that_points_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: Trap) -> None:
    """A name of the attacker's own, whose lookup gives what the attacker wants."""

    def find(host: str, port: int) -> list[str]:
        return {"inside.example": ["127.0.0.1", "::1"], "cloud.example": ["169.254.169.254", "fd00:ec2::254"]}[host]

    monkeypatch.setattr("payres.core.remote.ip_addresses.find_addresses", find)
    with run_instance(tmp_path / "payres.db", allow_private_hosts=False) as instance:
        for way in WAYS_IN:
            for name in ("inside.example", "cloud.example"):
                status, error = way(instance, f"https://{name}:{trap.port}")
                assert status in {400, 401}
                assert "has no public address" in error["details"]["hint"], error
    assert not trap.taken


def test_ssrf_does_not_tell_which_names_there_are_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of the operator's network and one that nobody has get the same refusal."""

    def find(host: str, port: int) -> list[str]:
        if host == "wiki.corp.example":
            return ["10.0.0.7"]
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("payres.core.remote.ip_addresses.find_addresses", find)
    with run_instance(tmp_path / "payres.db", allow_private_hosts=False) as instance:
        for way in WAYS_IN:
            inside, nowhere = (way(instance, f"https://{name}.corp.example") for name in ("wiki", "none"))
            assert inside[0] == nowhere[0]
            assert json.dumps(inside[1]) == json.dumps(nowhere[1]).replace("none.corp", "wiki.corp")


def test_ssrf_answers_never_carry_what_was_found(guarded: Instance, trap: Trap) -> None:
    """The refusal of a port that listens and of one that does not are the same text, so nobody scans ports with it."""
    found = []
    for port in (trap.port, 1):
        _, error = as_client(guarded, f"https://127.0.0.1:{port}")
        found.append(error)
    assert found[0] == found[1]
