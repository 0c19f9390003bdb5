"""Secrets stay where they belong: a whole payment between two servers, and then a look at all that it left behind."""

import base64
import logging
import re
import secrets
import stat
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
import pytest

from payres.accounts import owners
from payres.accounts.passwords import hash_password
from payres.operator.upkeep.backup_and_restore import make_backup
from payres.testing.peering import peer
from tests.attacks.conftest import PASSWORD, process, with_alice
from tests.helpers import TIMEOUT, sign_in_token, usd, wait_until
from tests.instance import Instance, run_instance

COOKIES = {"payres_session": "session", "payres_known_": "known browser", "payres_form": "secret of sign-in forms"}


class Traces(msgspec.Struct):
    """The secrets of a payment by name, and what was to be seen of it from outside."""

    secrets: dict[str, str]
    log: str
    folder: Path
    refusals: list[httpx2.Response]
    a: Instance
    b: Instance


class Kept(logging.Handler):
    """What the servers log, at every level and with every traceback; the tests' own client logs in another thread."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s %(args)r"))

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != threading.main_thread().ident:
            self.lines.append(self.format(record))


@pytest.fixture(scope="module")
def log() -> Iterator[Kept]:
    """Everything at DEBUG, whatever level a library asks for."""
    root, kept = logging.getLogger(), Kept()
    level = root.level
    root.addHandler(kept)
    root.setLevel(logging.DEBUG)
    yield kept
    root.removeHandler(kept)
    root.setLevel(level)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory, log: Kept) -> Iterator[Traces]:
    folder, made = tmp_path_factory.mktemp("secrets"), list[str]()
    original = secrets.token_urlsafe

    def noted(size: int | None = None) -> str:
        made.append(original(size))
        return made[-1]

    with (
        pytest.MonkeyPatch.context() as patch,
        run_instance(folder / "a.db", ilp_address="test.a") as a,
        run_instance(folder / "b.db", ilp_address="test.b") as b,
    ):
        patch.setattr(secrets, "token_urlsafe", noted)
        peer(a, b)
        tokens = {"peer token out": made[0], "peer token in": made[1]}
        found, refusals = drive(a, b)
        found |= tokens | stored_secrets(a) | {f"made by the server {n}": text for n, text in enumerate(made)}
        yield Traces(found, "\n".join(log.lines), folder, refusals, a, b)


def drive(a: Instance, b: Instance) -> tuple[dict[str, str], list[httpx2.Response]]:
    """A payment from a to b, with everything that can be refused on the way."""
    alice, client = a.wallet("alice"), a.client
    a.write(partial(owners.store_password, path="alice", password_hash=hash_password(PASSWORD)))
    bill = b.client.create_incoming_payment(b.wallet("bob"))
    quote = client.create_quote(alice, bill["id"], debitAmount=usd(500))
    spending = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": alice}
    asked = client.request_grant(spending).json()
    redirect, follow_up = asked["interact"]["redirect"], asked["continue"]
    reference, cookies, refusals = consent(redirect)
    continuation = follow_up["access_token"]["value"]
    refusals += [
        client.post(follow_up["uri"], {"interact_ref": reference[:-1]}, continuation),
        client.post(follow_up["uri"], {"interact_ref": reference}, continuation[:-1]),
        a.new_client("other").post(follow_up["uri"], {"interact_ref": reference}, continuation),
    ]
    given = client.post(follow_up["uri"], {"interact_ref": reference}, continuation).json()
    rotated = client.post(given["access_token"]["manage"], None, given["access_token"]["value"]).json()["access_token"]
    body = {"walletAddress": alice, "quoteId": quote["id"]}
    refusals += [
        client.post("/outgoing-payments", body, given["access_token"]["value"]),
        a.new_client("third").post("/outgoing-payments", body, rotated["value"]),
        client.request("POST", "/outgoing-payments", token=rotated["value"], raw=b"{" + rotated["value"].encode()),
    ]
    payment = client.post("/outgoing-payments", body, rotated["value"]).json()
    assert not a.wait_for(payment)["failed"]
    refusals.append(client.post("/outgoing-payments", body, rotated["value"]))
    assert all(answer.status_code >= 400 for answer in refusals)
    raw = client.private_key.private_bytes_raw()
    return {
        "password": PASSWORD,
        **cookies,
        "continuation token": continuation,
        "interaction reference": reference,
        "interaction nonce": redirect.rpartition("/")[2],
        "access token": given["access_token"]["value"],
        "rotated token": rotated["value"],
        "shared secret": bill["methods"][0]["sharedSecret"],
        "client key": base64.urlsafe_b64encode(raw).decode().rstrip("="),
        "client key in hexadecimal": raw.hex(),
    }, refusals


def consent(redirect: str) -> tuple[str, dict[str, str], list[httpx2.Response]]:
    """What the owner's browser does: the reference, the cookies and what was refused."""
    with httpx2.Client(timeout=TIMEOUT, verify=False) as browser:
        form = {"choice": "sign-in", "password": PASSWORD, "csrf": sign_in_token(browser, redirect)}
        refused = [browser.post(redirect, data=form | {"password": f"{PASSWORD}!"})]
        assert browser.post(redirect, data=form).status_code == 303
        page = browser.get(redirect).text
        fields = {name: re.findall(rf'name="{name}" value="([^"]+)"', page)[0] for name in ("csrf", "shown")}
        refused.append(browser.post(redirect, data={"choice": "approve"} | fields | {"csrf": "0" * 64}))
        location = browser.post(redirect, data={"choice": "approve"} | fields).headers["location"]
        cookies = {COOKIES[name.rstrip("0123456789")]: browser.cookies[name] for name in browser.cookies}
    return parse_qs(urlsplit(location).query)["interact_ref"][0], cookies, refused


def stored_secrets(instance: Instance) -> dict[str, str]:
    """The server's own, in the forms in which they could be written by mistake."""
    rows = instance.read(lambda tx: tx.execute("SELECT name, value FROM secret").fetchall())
    assert rows
    return {f"{name} in hexadecimal": value.hex() for name, value in rows} | {
        f"{name} in base64": base64.b64encode(value).decode() for name, value in rows
    }


def told(secrets_: dict[str, str], text: str) -> set[str]:
    return {name for name, secret in secrets_.items() if secret in text}


def test_secrets_are_not_in_the_log(traces: Traces) -> None:
    assert "aiosqlite DEBUG" in traces.log  # every level was heard, of the libraries too
    assert not told(traces.secrets, traces.log)
    escaped = traces.log.encode().decode("unicode_escape", "replace")
    assert not told(traces.secrets, escaped)


def test_secrets_are_not_in_refusals(traces: Traces) -> None:
    """But for what the refused request itself carried, in the signature base that it is shown to compare."""
    assert len(traces.refusals) > 8
    for answer in traces.refusals:
        sent = f"{answer.request.headers!r}{answer.request.headers.get('authorization')}{answer.request.url}"
        known = told(traces.secrets, sent) | told(traces.secrets, answer.request.url.path)
        assert not told(traces.secrets, answer.text) - known, answer.text


def test_secrets_that_are_kept_as_hashes_are_not_in_the_database(traces: Traces) -> None:
    hashed = {
        *(*COOKIES.values(), "password", "continuation token", "access token", "rotated token"),
        *("peer token out", "peer token in", "shared secret", "client key"),
    }
    assert hashed <= traces.secrets.keys()
    for file in traces.folder.iterdir():
        content = file.read_bytes()
        assert not {name for name in hashed if traces.secrets[name].encode() in content}, file


def test_secrets_are_in_no_file_that_others_can_read(traces: Traces, tmp_path: Path) -> None:
    copy = make_backup(traces.folder / "a.db", tmp_path / "copy.db", overwrite=False, now=traces.a.clock.now())
    files = [*traces.folder.iterdir(), copy.path]
    assert {file.suffix for file in files} >= {".db", ".db-wal", ".db-shm", ".lock"}
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file


def visible(pid: int) -> str:
    """What `ps` shows to everyone on the machine."""
    return Path(f"/proc/{pid}/cmdline").read_text()


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="the arguments of processes are read from /proc")
def test_secrets_are_not_in_the_arguments_of_processes(tmp_path: Path) -> None:
    """A password can be given without ever being an argument, as can the tokens of a peer."""
    database = with_alice(tmp_path)
    with process("wallet", "password", "alice", "--password-file", "-", "--database", database) as asking:
        wait_until(lambda: "wallet\0password\0alice" in visible(asking.pid))
        shown = visible(asking.pid)
        out, error = asking.communicate(f"{PASSWORD}\n", TIMEOUT)
    assert asking.returncode == 0, error
    assert PASSWORD not in shown + out + error
