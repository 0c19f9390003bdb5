"""What tests of several rooms share: amounts as the wire has them, waiting for other threads, and child processes."""

import asyncio
import base64
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import click
import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import settings

from payres.accounts.sessions import csrf_token
from payres.cli import main
from payres.core.protocol.errors import Rejected, kinds_of_errors
from payres.core.signatures.jwk import JWK, generate_private_key, jwk_from_public_bytes
from payres.core.signatures.sign import Message
from payres.core.signatures.verify import Verified, parse, verify
from tests.instance import Instance
from tests.signing_client import Client

Json = dict[str, Any]


class HasPid(Protocol):
    @property
    def pid(self) -> int: ...


ROOT = Path(__file__).parents[1]
# Seconds after which whatever a test waits for counts as hanging. No test expects it to pass: a machine that does many
# other things besides takes longer for everything, so nothing shorter tells a fault from a busy machine.
TIMEOUT = 60.0
# How many examples `make torture` makes of each property; 0 in `make test`, where each property has its own few.
PROPERTY_EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "0"))
# The class of each error that a client can meet, by status and code.
ERRORS = {(kind.status, kind.code): kind for kind in kinds_of_errors()}


def examples(number: int) -> settings:
    """A property is tried with so many examples, and with more of them where more are asked for."""
    return settings(max_examples=max(number, PROPERTY_EXAMPLES))


def amount(value: int | str, code: str = "USD", scale: int = 2) -> Json:
    """An amount as the wire has it; `value` counts the asset's smallest unit."""
    return {"value": str(value), "assetCode": code, "assetScale": scale}


def sign_in_token(browser: httpx2.Client, page: str) -> str:
    """The token of a form that signs in, which a browser has from then on."""
    if "payres_form" not in browser.cookies:
        browser.get(page)
    return csrf_token(browser.cookies["payres_form"])


def usd(value: int | str) -> Json:
    """An amount of US dollars as the wire has it, in cents."""
    return amount(value)


def refusal(answer: httpx2.Response, status: int, code: str, **details: Any) -> dict[str, Any]:
    """Checks that an answer is this refusal, in the documented shape and with these details; returns its `error`."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json()
    assert body.keys() == {"error"}
    error: dict[str, Any] = body["error"]
    assert error["code"] == code, answer.text
    assert error.keys() == {"code", "description", "details"}
    kind = ERRORS[status, code]
    assert error["description"] == kind.described(error["details"].get("reason"))
    assert error["details"]["hint"]
    url = answer.request.url
    where_to_ask = f"GNAP as_uri={url.scheme}://{url.netloc.decode()}/"
    assert answer.headers.get("www-authenticate") == (where_to_ask if status == 401 else None)
    found = error["details"]
    if status in {401, 403} or "reason" in found:
        assert found.get("reason") in kind.reasons, answer.text
    assert {name: found.get(name) for name in details} == details, answer.text
    return error


def last_segment(url: str) -> str:
    """The id at the end of a resource's URL."""
    return url.rpartition("/")[2]


def receiver_of(instance: Instance, value: int | None = None, wallet: str = "bob", **members: Any) -> str:
    """The URL of a new incoming payment, of any amount or of so many cents."""
    wanted = None if value is None else usd(value)
    return str(instance.client.create_incoming_payment(instance.wallet(wallet), wanted, **members)["id"])


def client_with_key(instance: Instance, kid: str = "key") -> Client:
    """A client that is known by its key alone. Close it."""
    private_key = generate_private_key()
    jwk = jwk_from_public_bytes(kid, private_key.public_key().public_bytes_raw())
    return Client("", private_key, jwk, instance.base_url, instance.clock, instance.approve)


def new_jwk(kid: str) -> JWK:
    """A new public key."""
    return jwk_from_public_bytes(kid, generate_private_key().public_key().public_bytes_raw())


def sign_by_hand(key: Ed25519PrivateKey, values: Mapping[str, str], parameters: str) -> dict[str, str]:
    """The headers of a signature over components with these values, written after RFC 9421 section 2.5."""
    names = " ".join(f'"{name}"' for name in values)
    lines = [f'"{name}": {value}' for name, value in values.items()]
    base = "\n".join([*lines, f'"@signature-params": ({names}){parameters}'])
    signature = base64.b64encode(key.sign(base.encode())).decode()
    return {"signature-input": f"sig1=({names}){parameters}", "signature": f"sig1=:{signature}:"}


def wait_until(
    happens: Callable[[], Any],
    otherwise: str | Callable[[], str] = "it does not happen",
    seconds: float = TIMEOUT,
    pause: float = 0.005,
) -> None:
    """Waits for what another thread or process does in its own time, looking after each pause.

    Raises AssertionError, with `otherwise`, when it still has not happened after these seconds.
    """
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, otherwise() if callable(otherwise) else otherwise
        time.sleep(pause)


def commands() -> dict[str, click.Command]:
    """Every command that does something, by its full name."""
    found = {}

    def walk(command: click.Command, name: str) -> None:
        if not isinstance(command, click.Group):
            found[name] = command
            return
        context = click.Context(command)
        for below in command.list_commands(context):
            inner = command.get_command(context, below)
            assert inner is not None
            walk(inner, f"{name} {below}")

    walk(main, "payres")
    return found


async def settle() -> None:
    """Lets every task go as far as it can."""
    for _ in range(30):
        await asyncio.sleep(0)


def is_refused(port: int) -> bool:
    """Whether nobody listens on a port of this machine any more."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT).close()
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    return False


def read_to_end(connection: socket.socket) -> bytes:
    """What comes on a connection until the other side closes it."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def free_of_settings(**variables: str) -> dict[str, str]:
    """The environment of the tests without settings, and with this checkout on the path and `variables`.

    A file of settings is read where `PAYRES_CONFIG` names it; that of a server on this machine is not.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PAYRES_")}
    return inherited | {"PYTHONPATH": str(ROOT), "PAYRES_CONFIG": os.devnull} | variables


def set_system_config(patch: pytest.MonkeyPatch, path: Path) -> None:
    """Lets a file stand for /etc/payres/payres.toml in this process."""
    for module in ("core.process.settings", "cli.session", "cli.server"):
        patch.setattr(f"payres.{module}.SYSTEM_CONFIG", path)


def spawn(command: Sequence[str], **options: Any) -> "subprocess.Popen[str]":
    """Starts a program that leads a process group, to be ended by `kill`. `options` are those of subprocess.Popen."""
    return subprocess.Popen(command, text=True, start_new_session=True, **options)


@contextmanager
def child(command: Sequence[str], **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """A program that is killed, with all that it has started, when the block ends.

    So a test that fails, or that a timeout ends, leaves nothing behind that could fail the next.
    """
    process = spawn(command, **options)
    with process:
        try:
            yield process
        finally:
            kill(process)


def kill(process: HasPid) -> None:
    """Kills a process that leads a process group, and the group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def announced(process: "subprocess.Popen[str]") -> Json:
    """The JSON object that `payres serve --json` prints when it listens. Raises AssertionError when it ends before."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line == "}\n":
            found: Json = json.loads("".join(lines))
            return found
    raise AssertionError(process.communicate())


def check_log_of_a_clean_end(errors: str) -> None:
    """The log of a server says that it stops and that it has stopped, and nothing else."""
    lines = [line.partition(" INFO payres.http: ")[2] for line in errors.splitlines()]
    assert [line.partition(":")[0] for line in lines] == ["stopping", "stopped"], errors


def verify_message(message: Message, key: JWK, now: int, max_age: int = 300) -> Verified | Rejected:
    """The verdict on a message whose key is known beforehand; `now` is microseconds since the Unix epoch."""
    unverified = parse(message, max_age, now)
    return unverified if isinstance(unverified, Rejected) else verify(unverified, {key.kid: key})
