"""Which addresses are connected to, and how the server at the other end is verified."""

import asyncio
import logging
import socket
import ssl
from pathlib import Path

import httpx2
import pytest

from payres.core.remote import http
from payres.core.remote.connection import FetchFailed, SilentServer
from payres.core.remote.http import GuardedClient
from payres.core.remote.transport import system_tls
from tests.core.remote.conftest import UNHURRIED, Elapse, Serve, failure_of, loopback
from tests.internet import PUBLIC, Internet
from tests.tls import Tls, privately_issued

OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
FAILED = "The connection to {} failed; check that it is up"
UNTRUSTED = "The certificate of wallet.example is not trusted: "
MISMATCH = f"{UNTRUSTED}Hostname mismatch, certificate is not valid for 'wallet.example'"
NOT_PUBLIC = "{} has no public address; name a host that all the net can reach"


async def test_very_address_that_was_checked_is_connected_to(internet: Internet, tls: Tls, serve: Serve) -> None:
    internet.reached[PUBLIC] = await serve(OK, tls.server("wallet.example"))
    internet.point("wallet.example", [PUBLIC], ["127.0.0.1"])
    async with GuardedClient(False) as client:
        assert (await client.get_json("https://wallet.example/"))[0] == {}
        assert (internet.lookups, internet.connections) == ({"wallet.example": 1}, [PUBLIC])
        # The name points elsewhere now: the next connection is checked anew.
        with pytest.raises(FetchFailed) as caught:
            await client.get_json("https://wallet.example/")
    assert caught.value.sentence == NOT_PUBLIC.format("wallet.example")
    assert internet.connections == [PUBLIC]


async def test_permitted_addresses_are_tried_in_turn(
    internet: Internet, tls: Tls, serve: Serve, elapse: Elapse
) -> None:
    internet.point("wallet.example", ["10.0.0.1", "2606:4700::1", "1.1.1.1", "1.1.1.1", "fe80::1", "1.0.0.1"])
    internet.silent, internet.on_silence = ["2606:4700::1"], lambda: elapse(UNHURRIED.seconds / 3)
    internet.reached["1.0.0.1"] = await serve(OK, tls.server("wallet.example"))
    async with GuardedClient(False, UNHURRIED) as client:
        assert (await client.get_json("https://wallet.example/"))[0] == {}
    assert internet.connections == ["2606:4700::1", "1.1.1.1", "1.0.0.1"]


UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


async def test_failure_does_not_tell_names_inside_from_names_that_are_not_there(
    internet: Internet, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever could tell them apart would learn the names in the operator's network; the operator's log may."""
    told = set()
    internet.point("wiki.corp.example", UNKNOWN, [], ["10.0.0.7"], ["127.0.0.1", "fd00::7"])
    with caplog.at_level(logging.DEBUG, "payres.federation"):
        for _ in range(4):
            failure = await failure_of(GuardedClient(False), "https://wiki.corp.example/")
            told.add((failure.reason, failure.sentence, failure.retryable, failure.unsent))
    assert told == {("unreachable", NOT_PUBLIC.format("wiki.corp.example"), True, True)}
    assert "not known" in caplog.text
    assert "10.0.0.7" in caplog.text


NEVER = "wallet.example is at an address that is never asked, such as link-local ones"


@pytest.mark.parametrize(
    ("found", "sentence", "retryable"),
    [
        (["169.254.169.254"], NEVER, False),
        (["fe80::1"], NEVER, False),
        (["0.0.0.0"], NEVER, False),
        ([], "The name wallet.example has no address", True),
        (UNKNOWN, "The name wallet.example has no address", True),
    ],
)
async def test_failure_where_private_addresses_are_permitted(
    internet: Internet, found: list[str] | Exception, sentence: str, retryable: bool
) -> None:
    internet.point("wallet.example", found)
    failure = await failure_of(loopback(), "http://wallet.example/")
    assert (failure.sentence, failure.reason, failure.retryable) == (sentence, "unreachable", retryable)


async def test_connection_that_no_address_accepts_is_a_failure(internet: Internet, tls: Tls, elapse: Elapse) -> None:
    internet.point("wallet.example", ["1.1.1.1", "1.0.0.1"])
    failure = await failure_of(GuardedClient(False), "https://wallet.example/")
    assert (type(failure), failure.sentence) == (SilentServer, FAILED.format("wallet.example"))
    internet.silent, internet.on_silence = ["1.0.0.1"], lambda: elapse(UNHURRIED.seconds / 2)
    failure = await failure_of(GuardedClient(False, UNHURRIED), "https://wallet.example/")
    assert (type(failure), failure.sentence) == (SilentServer, "wallet.example did not take a connection in time")
    with socket.socket() as bound:  # so that nobody else gets the port, and nobody listens
        bound.bind(("127.0.0.1", 0))
        authority = f"127.0.0.1:{bound.getsockname()[1]}"
        failure = await failure_of(loopback(), f"http://{authority}/")
    assert (type(failure), failure.sentence) == (SilentServer, FAILED.format(authority))


# TLS


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"], ids=["another name", "the address, not the name"])
async def test_certificate_must_be_for_the_name(internet: Internet, tls: Tls, serve: Serve, address: str) -> None:
    internet.reached[address] = await serve(OK, tls.server("other.example"))
    internet.point("wallet.example", [address])
    async with loopback() as client:
        for _ in range(2):  # it has answered, so it does not count as down for a while
            failure = await failure_of(client, "https://wallet.example/")
            assert (failure.sentence, failure.unsent, failure.retryable) == (MISMATCH, True, True)
            assert failure.reason == "untrusted_certificate"


async def test_certificate_must_be_trusted(internet: Internet, serve: Serve, tmp_path: Path) -> None:
    internet.reached["127.0.0.1"] = await serve(OK, Tls(tmp_path).server("wallet.example"))
    internet.point("wallet.example", ["127.0.0.1"])
    failure = await failure_of(loopback(), "https://wallet.example/")
    assert (failure.sentence, failure.unsent) == (f"{UNTRUSTED}self-signed certificate", True)


async def test_server_without_tls_is_no_untrusted_one(internet: Internet) -> None:
    def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        internet.reached["127.0.0.1"] = server.sockets[0].getsockname()[1]
        internet.point("wallet.example", ["127.0.0.1"])
        failure = await failure_of(loopback(), "https://wallet.example/")
    told = "TLS with wallet.example failed; check that it speaks HTTPS at this port"
    assert (failure.sentence, failure.reason, failure.unsent) == (told, "unreachable", True)


def test_certificates_are_those_of_the_system() -> None:
    ours, theirs = system_tls(), httpx2.create_ssl_context(trust_env=False)
    assert ours.cert_store_stats() == theirs.cert_store_stats()
    assert (ours.verify_mode, ours.check_hostname) == (ssl.CERT_REQUIRED, True)


async def test_certificates_are_those_that_the_variable_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    ca, tls = privately_issued(tmp_path, "localhost")
    monkeypatch.setattr(http, "system_tls", system_tls.__wrapped__)
    url = f"https://localhost:{await serve(OK, tls)}/"
    async with loopback() as client:
        with pytest.raises(FetchFailed):
            await client.get_json(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(ca))
        assert (await client.get_json(url))[0] == {}


def test_variable_that_names_no_certificates_has_none_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    assert system_tls.__wrapped__().cert_store_stats()["x509"] == 0
    assert "SSL_CERT_FILE or SSL_CERT_DIR cannot be read" in caplog.text
