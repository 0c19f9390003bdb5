"""Every command that changes something writes one line into the audit log, and those that only read write none."""

import base64
import getpass
import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from payres.accounts import totp
from payres.accounts.store.owners import OF_OWNERS, owner_at
from payres.cli import main
from payres.core.signatures.jwk import encode_jwk
from payres.core.store import events
from payres.core.store.rows import PageQuery
from payres.core.store.work import Work
from payres.interledger.store.packets import PACKETS, PacketRecord
from payres.operator import assets, webhooks
from payres.operator.store.grants import page_of_grants
from tests.cli.conftest import CREATE, AsJson, Command, rows_of
from tests.helpers import Json, commands, last_segment, new_jwk, receiver_of
from tests.instance import Instance, run_instance
from tests.operator.declared.test_declarations import ARGUMENT, CASES, OPERATIONS

COMMANDS = commands()
# The changes that are not in the table of operations, in this order: later ones may need earlier ones.
# Braces name things made by `prepared`.
CHANGES = {
    "wallet create new --asset USD --scale 2": ("wallet.create", "new"),
    "wallet rename new Newer": ("wallet.rename", "new"),
    "wallet password new --password-file {password}": ("wallet.set_password", "new"),
    "wallet reset-link new": ("wallet.reset_link", "new"),
    "wallet remove-factors protected --why lost": ("wallet.remove_factors", "protected"),
    "wallet keep-factors protected": ("wallet.keep_factors", "protected"),
    "wallet create newer --asset USD --scale 2 --owner new": ("wallet.create", "newer"),
    "wallet separate newer --why asked": ("wallet.separate", "newer"),
    "key add new --jwk {jwk}": ("key.add", "new"),
    "key add new --jwk {jwk} --name Mine": ("key.rename", "new"),
    "key generate new --out {out} --kid made": ("key.add", "new"),
    "grant approve {first}": ("grant.approve", "{first}"),
    "grant deny {second}": ("grant.deny", "{second}"),
    "payment refund {bill} --amount 1.00 --reference r-1": ("payment.refund", "{bill}"),
    "fee withdraw USD 2 0.05": ("fees.withdraw", "USD 2"),
    "liquidity deposit USD 2 9.00": ("liquidity.deposit", "USD 2"),
    "peer resolve {packet} --delivered": ("packet.resolve", "{packet}"),
    "webhook replay {event} --webhook {webhook}": ("webhook.replay", "{event}"),
    "api-key create Mine --scope audit:read": ("api_key.create", ""),
    "admin link --name Carla": ("admin.link", "Carla"),
    "backup {backup}": ("database.backup", "{backup}"),
}
# These change nothing, or need something else: an endpoint that answers, or a server that is stopped.
OTHERS = {
    *(
        "payres init",
        "payres serve",
        "payres demo",
        "payres sandbox",
        "payres completion",
        "payres man",
        "payres restore",
    ),
    *(
        "payres webhook test",
        "payres mail test",
        "payres status",
        "payres doctor",
        "payres search",
        "payres wallet owner",
    ),
    *("payres pay", "payres request", "payres sign", "payres verify"),
    *(f"payres export {what}" for what in ("payments", "ledger", "statement")),
    *(
        name
        for name in COMMANDS
        if name.split()[-1] in {"list", "show", "movements", "unresolved", "check", "deliveries", "attempts"}
    ),
}


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Instance, Json]]:
    folder = tmp_path_factory.mktemp("audit")
    with run_instance(folder / "payres.db") as instance:
        yield instance, prepared(instance, folder)


def prepared(instance: Instance, folder: Path) -> Json:
    """The objects of the commands: grants to decide, a paid bill, fees, an unresolved packet, files."""
    instance.write(lambda work: assets.set_fee(work, "USD", 2, "0.10", 0).id)
    instance.create_wallet("protected")
    instance.write(lambda work: protect(work, "protected"))
    bill = receiver_of(instance, 500)
    paid = last_segment(instance.client.pay(instance.wallet("alice"), bill)["id"])
    for _ in range(2):
        item = {"type": "outgoing-payment", "actions": ["read"], "identifier": instance.wallet("alice")}
        assert instance.client.request_grant(item).status_code == 200
    first, second = instance.read(lambda work: page_of_grants(work, "pending", PageQuery(2), work.now, False))[0]
    run(
        instance,
        "peer add bank --ilp-address test.bank --asset USD --scale 2 --url https://a.example/"
        " --outgoing-token SECRET-1 --incoming-token SECRET-2 --credit-limit 9.00",
    )
    packet = PacketRecord("packet", 1, paid, None, None, 1, 1, None, 1, "doubtful")
    instance.write(lambda work: PACKETS.insert(work, packet))
    hook = instance.write(lambda work: webhooks.add(work, "http://127.0.0.1:9/", private=True))
    [event] = instance.read(lambda work: events.events_after(work, 0, 1))
    files = {name: folder / name for name in ("password", "jwk", "out", "backup")}
    files["password"].write_text("correct horse\n")
    files["jwk"].write_text(encode_jwk(new_jwk("mine")))
    made = {"bill": last_segment(bill), "first": first.id, "second": second.id, "packet": packet.id}
    return {**made, "webhook": hook.webhook.id, "event": event.id, **files}


def protect(work: Work, path: str) -> None:
    """Turns codes on for the owner of a wallet."""
    owner = owner_at(work, path)
    assert owner is not None
    totp.begin_codes(work, OF_OWNERS, owner.id)
    secret = totp.unconfirmed_secret(work, OF_OWNERS, owner.id)
    assert secret is not None
    code = totp.code_at(base64.b32decode(secret), work.now // totp.STEP)
    assert totp.confirm_codes(work, OF_OWNERS, owner, code)


def run(instance: Instance, line: str) -> str:
    words = [*shlex.split(line), "--database", instance.context.database.path]
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == 0, f"{line}: {result.output}"
    return result.stdout


def test_every_change_is_written_down(
    books: tuple[Instance, Json], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    instance, made = books
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAYRES_BASE_URL", instance.base_url)
    monkeypatch.setenv("SUDO_USER", "carla")
    for name in [name for name in os.environ if name.startswith("PAYRES_") and name != "PAYRES_BASE_URL"]:
        monkeypatch.delenv(name)
    before = audited(instance)
    for line, (action, about) in CHANGES.items():
        run(instance, line.format(**made))
        entries = audited(instance)
        assert len(entries) == len(before) + 1, line
        newest, before = entries[-1], entries
        assert (newest["actor"], newest["action"]) == ("shell:carla", action), line
        assert about.format(**made) in newest["object"]
    for line in ("wallet list", "payment list", "grant list", "peer show bank", "audit list", "ledger check"):
        run(instance, line)
    assert audited(instance) == before
    assert "SECRET" not in str(before)
    assert "correct horse" not in str(before)


def audited(instance: Instance) -> list[Json]:
    printed = json.loads(run(instance, "audit list --limit 1000 --json"))
    return list(reversed(printed["entries"]))


def test_every_command_is_in_one_of_the_lists() -> None:
    tabled = (line.words.split() for case in CASES if case.action and (line := OPERATIONS[case.id].command))
    changing = {" ".join(["payres", *(word for word in words if not ARGUMENT.fullmatch(word))]) for words in tabled}
    changing |= {name for name in COMMANDS for line in CHANGES if f"payres {line} ".startswith(f"{name} ")}
    assert changing | OTHERS == COMMANDS.keys()
    assert not changing & OTHERS


def test_restore_and_revocation_are_written_down(payres: Command, as_json: AsJson) -> None:
    payres("init")
    key = as_json("api-key", "create", "Mine", "--scope", "audit:read")["id"]
    payres("api-key", "revoke", key)
    payres("api-key", "revoke", key)
    payres("backup", "copy.db")
    payres("restore", "copy.db")
    actions = [(one["action"], one["object"]) for one in as_json("audit", "list")["entries"]]
    assert actions == [("database.restore", "copy.db"), ("api_key.revoke", key), ("api_key.create", key)]


def test_audit_list_says_who_did_what(payres: Command, as_json: AsJson, monkeypatch: pytest.MonkeyPatch) -> None:
    payres("init")
    monkeypatch.delenv("SUDO_USER", raising=False)
    payres(*CREATE)
    monkeypatch.setenv("SUDO_USER", "carla")
    payres("wallet", "deposit", "alice", "10.00", "--reference", "bank-1")
    newest, oldest = as_json("audit", "list")["entries"]
    assert (newest["actor"], newest["action"], newest["object"]) == ("shell:carla", "wallet.deposit", "alice")
    assert newest["details"] == {"amount": "10.00 USD", "reference": "bank-1"}
    assert (oldest["actor"], oldest["action"]) == (f"shell:{getpass.getuser()}", "wallet.create")
    [_, cells] = rows_of(payres("audit", "list", "--limit", "1"))
    assert cells[1:] == ["shell:carla", "wallet.deposit", "alice", "amount 10.00 USD, reference bank-1"]
