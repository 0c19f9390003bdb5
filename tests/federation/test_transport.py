"""Which addresses are connected to, and whom a connection is trusted to be with."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

import httpx2
import pytest

from payres.federation.connection import FetchFailed, NoAnswer
from payres.federation.http import GuardedClient
from payres.federation.transport import system_tls
from tests.federation.conftest import UNHURRIED, Detour, Elapse, Names, Serve, failure_of, loopback
from tests.tls import Tls

OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
NO_TRUST = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # made once: loading the system's certificates takes a while
FAILED = "The connection to {} failed; check that it is up"
NOT_PUBLIC = "{} has no public address; name a host that all the net can reach"


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    return Tls(tmp_path)


async def unknown(host: str, port: int) -> Sequence[str]:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "2130706433", "017700000001", "0x7f000001", "0x7f.1", "127.1", "0", "0.0.0.0", "localhost"),
        *("169.254.169.254", "2852039166", "10.0.0.1", "192.168.0.1", "[::1]", "[::]", "[::ffff:127.0.0.1]"),
        *("[::ffff:7f00:1]", "[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]", "[fe80::1]", "[fd00::1]"),
        *("a..b", ".wallet.example", "a" * 64 + ".example"),  # no lookup takes these
    ],
)
async def test_host_that_is_not_public_as_the_system_reads_it_is_not_connected_to(host: str) -> None:
    detour = Detour(1)
    failure = await failure_of(GuardedClient(False, opener=detour), f"https://{host}/latest/meta-data")
    assert failure.sentence == NOT_PUBLIC.format(host.strip("[]"))
    assert (failure.reason, failure.retryable, detour.addresses) == ("unreachable", True, [])


async def test_very_address_that_was_checked_is_connected_to(tls: Tls, serve: Serve) -> None:
    port = await serve(OK, tls.server("wallet.example"))
    names = Names(["93.184.216.34"], ["127.0.0.1"])
    detour = Detour(port)
    async with GuardedClient(False, resolver=names, tls=tls.client, opener=detour) as client:
        assert (await client.get_json("https://wallet.example/"))[0] == {}
        assert (names.asked, detour.addresses) == (["wallet.example"], ["93.184.216.34"])
        # The name points elsewhere now: the next connection is checked anew.
        with pytest.raises(FetchFailed) as caught:
            await client.get_json("https://wallet.example/")
    assert caught.value.sentence == NOT_PUBLIC.format("wallet.example")
    assert detour.addresses == ["93.184.216.34"]


async def test_permitted_addresses_are_tried_in_turn(tls: Tls, serve: Serve, elapse: Elapse) -> None:
    port = await serve(OK, tls.server("wallet.example"))
    names = Names(["10.0.0.1", "2606:4700::1", "1.1.1.1", "1.1.1.1", "fe80::1", "1.0.0.1"])
    detour = Detour(port, silent=["2606:4700::1"], refusing=["1.1.1.1"], elapse=elapse)
    async with GuardedClient(False, UNHURRIED, resolver=names, tls=tls.client, opener=detour) as client:
        assert (await client.get_json("https://wallet.example/"))[0] == {}
    assert detour.addresses == ["2606:4700::1", "1.1.1.1", "1.0.0.1"]


async def test_failure_does_not_tell_names_inside_from_names_that_are_not_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever could tell them apart would learn the names in the operator's network; the operator's log may."""
    told = set()
    with caplog.at_level(logging.DEBUG, "payres.federation"):
        for resolver in (unknown, Names([]), Names(["10.0.0.7"]), Names(["127.0.0.1", "fd00::7"])):
            failure = await failure_of(GuardedClient(False, resolver=resolver), "https://wiki.corp.example/")
            told.add((failure.reason, failure.sentence, failure.retryable, failure.unsent))
    assert told == {("unreachable", NOT_PUBLIC.format("wiki.corp.example"), True, True)}
    assert "not known" in caplog.text
    assert "10.0.0.7" in caplog.text


NEVER = "wallet.example is at an address that is never asked, such as link-local ones"


@pytest.mark.parametrize(
    ("resolver", "sentence", "retryable"),
    [
        (Names(["169.254.169.254"]), NEVER, False),
        (Names(["fe80::1"]), NEVER, False),
        (Names(["0.0.0.0"]), NEVER, False),
        (Names([]), "The name wallet.example has no address", True),
        (unknown, "The name wallet.example has no address", True),
    ],
)
async def test_failure_where_private_addresses_are_permitted(resolver: Names, sentence: str, retryable: bool) -> None:
    failure = await failure_of(GuardedClient(True, resolver=resolver), "http://wallet.example/")
    assert (failure.sentence, failure.reason, failure.retryable) == (sentence, "unreachable", retryable)


async def test_connection_that_no_address_accepts_is_a_failure() -> None:
    refusing = Detour(1, refusing=["1.1.1.1", "1.0.0.1"])
    client = GuardedClient(False, resolver=Names(["1.1.1.1", "1.0.0.1"]), opener=refusing)
    failure = await failure_of(client, "https://wallet.example/")
    assert (type(failure), failure.sentence) == (NoAnswer, FAILED.format("wallet.example"))
    with socket.socket() as bound:  # so that nobody else gets the port, and nobody listens
        bound.bind(("127.0.0.1", 0))
        failure = await failure_of(loopback(), f"http://127.0.0.1:{bound.getsockname()[1]}/")
    assert (type(failure), failure.sentence) == (NoAnswer, FAILED.format("127.0.0.1"))


# TLS


@pytest.mark.parametrize(
    ("certificate", "address", "trusts"),
    [
        ("other.example", "127.0.0.1", True),
        ("other.example", "127.0.0.2", True),
        ("wallet.example", "127.0.0.1", False),
    ],
    ids=["another name", "the address instead of the name", "nobody vouches for it"],
)
async def test_certificate_must_be_trusted_and_for_the_name(
    tls: Tls, serve: Serve, monkeypatch: pytest.MonkeyPatch, certificate: str, address: str, trusts: bool
) -> None:
    port = await serve(OK, tls.server(certificate))
    monkeypatch.setenv("SSL_CERT_FILE", str(tls.directory / "server.pem"))  # the environment cannot vouch for it
    monkeypatch.setenv("SSL_CERT_DIR", str(tls.directory))
    trusted = tls.client if trusts else None
    client = GuardedClient(True, resolver=Names([address]), tls=trusted, opener=Detour(port))
    failure = await failure_of(client, "https://wallet.example/")
    assert (failure.sentence, failure.unsent) == (FAILED.format("wallet.example"), True)


def test_certificates_are_those_of_the_system() -> None:
    ours, theirs = system_tls(), httpx2.create_ssl_context(trust_env=False)
    assert ours.cert_store_stats() == theirs.cert_store_stats()
    assert (ours.verify_mode, ours.check_hostname) == (ssl.CERT_REQUIRED, True)


async def test_connection_whose_handshake_does_not_end_is_closed(elapse: Elapse) -> None:
    closed = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        elapse(UNHURRIED.seconds)
        await reader.read()
        closed.set()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        failure = await failure_of(GuardedClient(True, UNHURRIED, tls=NO_TRUST), f"https://127.0.0.1:{port}/")
        assert (type(failure), failure.unsent) == (NoAnswer, True)
        await closed.wait()


async def test_server_that_does_not_speak_tls_is_a_failure() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        failure = await failure_of(GuardedClient(True, tls=NO_TRUST), f"https://127.0.0.1:{port}/")
        assert (failure.sentence, failure.unsent) == (FAILED.format("127.0.0.1"), True)
