"""Changes by programs over the API: each happens, and is in the audit log without secrets."""

import secrets
from pathlib import Path
from typing import Any

import pytest

from payres.accounts.passwords import verify_password
from payres.accounts.store.owners import owner_at
from payres.core.protocol.amounts import MAX_DECIMAL_LENGTH, MAX_RATE_LENGTH
from payres.operator.api_keys import revoke_api_key
from payres.operator.declared import api as serving
from tests.helpers import Json, new_jwk
from tests.instance import Instance, run_instance
from tests.operator.declared.test_api import error_of
from tests.operator.programs import BASE, Program


@pytest.fixture
def wallet(program: Program) -> str:
    """The path of a wallet for one test, with a slash in it and 100.00 USD."""
    path = f"made/{secrets.token_hex(4)}"
    program.instance.create_wallet(path, deposit="100.00")
    return path


def at(wallet: str, rest: str = "") -> str:
    return f"/wallets/{wallet.replace('/', '%2F')}{rest}"


def last_change(program: Program) -> tuple[str, str, Json]:
    actor, action, about, details = program.audited()[0]
    assert actor == f"api:{program.id}"
    return action, about, details


def test_wallet_is_opened_changed_and_read(program: Program) -> None:
    path = f"opened-{secrets.token_hex(4)}"
    opened = program.post("/wallets", {"path": path, "assetCode": "USD", "assetScale": 2, "publicName": "Opened"})
    assert opened["walletAddress"] == program.instance.wallet(path)
    assert last_change(program) == (
        "wallet.create",
        path,
        {"assetCode": "USD", "assetScale": 2, "publicName": "Opened"},
    )
    changed = program.change("PATCH", at(path), {"publicName": None, "state": "inactive"})
    assert (changed["publicName"], changed["state"]) == (None, "inactive")
    assert [one[1] for one in program.audited()[:2]] == ["wallet.deactivate", "wallet.rename"]
    assert program.change("PATCH", at(path), {"state": "active"})["state"] == "active"
    assert program.change("PATCH", at(path), {}) == program.get(at(path))
    assert program.get("/wallets", first=1)["result"] == [program.get(at(path))]
    error_of(program.ask("POST", "/wallets", {"path": path, "assetCode": "USD", "assetScale": 2}), 409, "wrong_state")


def test_member_that_is_there_twice_moves_nothing(program: Program, wallet: str) -> None:
    url = f"{program.instance.base_url}{BASE}{at(wallet, '/deposits')}"
    headers = {"Authorization": f"Bearer {program.key}", "Content-Type": "application/json"}
    answer = program.http.post(url, content='{"amount": "1.00", "amount": "2.00"}', headers=headers)
    assert error_of(answer, 400, "invalid_request")["field"] == "amount"
    assert program.get(at(wallet))["balance"] == "100.00"


def test_password_is_set_and_said_nowhere(program: Program, wallet: str) -> None:
    shown = program.change("PUT", at(wallet, "/password"), {"password": "correct horse", "forgetBrowsers": True})
    assert shown["canSignIn"]
    assert last_change(program) == ("wallet.set_password", wallet, {"forgetBrowsers": True})
    found = program.instance.read(lambda work: owner_at(work, wallet))
    assert verify_password(found, "correct horse")
    assert program.change("DELETE", at(wallet, "/lockout")) == shown
    assert last_change(program)[0] == "wallet.unlock"


def add_peer(program: Program, name: str) -> None:
    tokens = {"outgoingToken": f"out-{name}", "incomingToken": f"in-{name}"}
    agreed = {"ilpAddress": f"test.{name}", "assetCode": "USD", "assetScale": 2, "url": "https://peer.example/ilp"}
    program.post("/peers", {"name": name, "creditLimit": "10.00", **agreed, **tokens})


@pytest.mark.parametrize(("kind", "free"), [("wallet", "103.00"), ("peer", "13.00"), ("liquidity", "3.00")])
def test_reference_makes_a_movement_once(program: Program, wallet: str, kind: str, free: str) -> None:
    name, code = f"peer-{secrets.token_hex(4)}", "CHF" if kind == "liquidity" else "USD"
    if kind == "peer":
        add_peer(program, name)
    places = {"wallet": (at(wallet), wallet), "peer": (f"/peers/{name}", name)}
    path, about = places.get(kind, ("/assets/CHF/2/liquidity", "CHF 2"))
    body = {"amount": "5.00", "reference": "transfer-1"}
    first = program.post(f"{path}/deposits", body)
    assert (first["kind"], first["amount"], first["reference"]) == ("deposit", "5.00", "transfer-1")
    assert last_change(program) == (f"{kind}.deposit", about, body | {"amount": f"5.00 {code}"})
    changes = len(program.audited())
    assert program.post(f"{path}/deposits", body) == first
    for way, other in (("deposits", body | {"amount": "6.00"}), ("withdrawals", body)):
        details = error_of(program.ask("POST", f"{path}/{way}", other), 409, "wrong_state")
        assert details["reference"] == "transfer-1"
        assert f"is that of a deposit of {code} 5.00" in details["hint"]
    assert len(program.audited()) == changes
    out = program.post(f"{path}/withdrawals", {"amount": "2"})
    assert program.get(f"{path}/movements", first=2)["result"] == [out, first]
    too_much = program.ask("POST", f"{path}/withdrawals", {"amount": "103.01"})
    assert error_of(too_much, 403, "insufficient_funds").items() >= {"reason": kind, "free": free}.items()
    program.instance.check_ledger()


def test_amounts_and_rates_may_be_as_long_as_in_the_command(program: Program) -> None:
    for scale in (50, 255):
        amount = f"0.{'0' * (scale - 1)}7"
        program.post("/wallets", {"path": f"fine-{scale}", "assetCode": "FINE", "assetScale": scale})
        assert program.post(at(f"fine-{scale}", "/deposits"), {"amount": amount})["amount"] == amount
    too_long = program.ask("POST", at("fine-255", "/deposits"), {"amount": "0" * (MAX_DECIMAL_LENGTH + 1)})
    assert error_of(too_long, 400, "invalid_request")["field"] == "amount"
    rate = f"0.{'1' * (MAX_RATE_LENGTH - 2)}"
    assert program.change("PUT", "/rates/FINE/USD", {"rate": rate})["rate"] == rate


def test_keys_of_clients_come_and_go(program: Program, wallet: str) -> None:
    jwk = new_jwk("my key/1")
    shown = {"kid": jwk.kid, "x": jwk.x, "alg": "EdDSA", "kty": "OKP", "crv": "Ed25519"}
    added = program.post(at(wallet, "/keys"), {"jwk": shown, "name": "My app"})
    assert (added["jwk"], added["name"]) == (shown, "My app")
    assert last_change(program) == ("key.add", wallet, {"kid": jwk.kid, "name": "My app"})
    assert program.get(at(wallet, "/keys"))["result"] == [added]
    revoked = program.change("DELETE", at(wallet, "/keys/my%20key%2F1"))
    assert revoked["revokedAt"]
    assert last_change(program) == ("key.revoke", wallet, {"kid": jwk.kid})
    assert program.get(at(wallet, "/keys"))["result"] == []
    assert program.get(at(wallet, "/keys"), revoked="true")["result"] == [revoked]
    other = {"jwk": shown | {"x": new_jwk("other").x}}
    again = program.post(at(wallet, "/keys"), other)
    error_of(program.ask("POST", at(wallet, "/keys"), {"jwk": shown}), 409, "wrong_state")
    assert program.get(at(wallet, "/keys"), revoked="true")["result"] == [revoked, again]
    program.change("DELETE", at(wallet, "/keys/my%20key%2F1"))
    error_of(program.ask("DELETE", at(wallet, "/keys/my%20key%2F1")), 404, "not_found")
    private = program.ask("POST", at(wallet, "/keys"), {"jwk": {**shown, "d": "secret"}})
    assert "private" in error_of(private, 400, "invalid_request")["hint"]


def test_tokens_of_a_peer_are_changed_and_said_nowhere(program: Program) -> None:
    name = f"peer-{secrets.token_hex(4)}"
    add_peer(program, name)
    program.change("PATCH", f"/peers/{name}", {"incomingToken": "another", "maxPacket": 9})
    assert last_change(program)[2] == {"tokens": ["incoming"], "maxPacket": 9}


def test_fees_that_nobody_has_paid_stay(program: Program) -> None:
    program.post("/assets/SEK/2/liquidity/deposits", {"amount": "30"})
    [found] = [one for one in program.get("/assets")["result"] if one["assetCode"] == "SEK"]
    assert (found["liquidity"], found["fees"]) == ("30.00", "0.00")
    answer = program.ask("POST", "/assets/SEK/2/fees/withdrawals", {"amount": "1.00"})
    assert error_of(answer, 403, "insufficient_funds")["reason"] == "fees"
    error_of(program.ask("GET", "/assets/XAU/2/liquidity/movements"), 404, "not_found")
    error_of(program.ask("PUT", "/assets/SEK/many/fee", {}), 404, "not_found")
    error_of(program.ask("PUT", "/packets/1/outcome", {"outcome": "delivered"}), 404, "not_found")


def test_ledger_is_read_and_checked(program: Program, wallet: str) -> None:
    checked = program.get("/ledger/check")
    assert program.get("/status")["lastCheckAt"] is not None
    assert (checked["ok"], checked["broken"]) == (True, None)
    [entry] = program.get("/ledger/entries", account=f"wallet {wallet}")["result"]
    assert (entry["kind"], entry["amount"]) == ("deposit", "100.00")
    assert (entry["debit"], entry["credit"]) == ("external USD 2", f"wallet {wallet}")
    newest = program.get("/ledger/entries", first=1)
    assert newest["result"] == [entry]
    assert program.get("/ledger/entries", first=1, cursor=newest["pagination"]["endCursor"])["result"] != [entry]
    assert entry in program.get("/ledger/entries", account="external USD 2")["result"]
    for account in ("alice", "wallet", "fees USD", "purse USD 2"):
        assert program.ask("GET", "/ledger/entries", account=account).status_code == 400
    for account in ("wallet nobody", "peer nobody", "liquidity XAU 2"):
        error_of(program.ask("GET", "/ledger/entries", account=account), 404, "not_found")


def test_backup_goes_where_the_settings_say_and_nowhere_else(program: Program, tmp_path: Path) -> None:
    error_of(program.ask("POST", "/backups", {}), 409, "wrong_state")
    error_of(program.ask("POST", "/backups", {"directory": "/tmp"}), 400, "invalid_request")
    with run_instance(tmp_path / "payres.db", backup_directory=str(tmp_path / "copies")) as instance:
        other = Program(instance, program.http)
        missing = error_of(other.ask("POST", "/backups", {}), 409, "wrong_state")
        assert missing["hint"].endswith("copies, which is not a directory")
        assert not (tmp_path / "copies").exists()
        (tmp_path / "copies").mkdir()
        made = other.post("/backups", {}, "backup-1")
        assert Path(made["backup"]).parent == tmp_path / "copies"
        assert Path(made["backup"]).stat().st_size == made["bytes"]
        assert other.post("/backups", {}, "backup-1") == made
        assert other.audited()[0][1:3] == ("database.backup", made["backup"])


@pytest.mark.parametrize("kind", ["read", "write"])
def test_key_that_ends_while_it_is_used_does_nothing(
    payres: Instance, program: Program, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """Another request may revoke the key between the authentication and the transaction."""
    user = Program(payres, program.http)
    given = serving._given

    async def slow(request: Any, operation: Any) -> Any:
        if operation.path.endswith(("/wallets", "/peers")):
            await payres.context.database.write(lambda work: revoke_api_key(work, user.id))
        return await given(request, operation)

    monkeypatch.setattr(serving, "_given", slow)
    body = {"path": "never", "assetCode": "USD", "assetScale": 2}
    answer = user.ask("GET", "/peers") if kind == "read" else user.ask("POST", "/wallets", body)
    assert error_of(answer, 401, "invalid_token")["reason"] == "revoked_token"
    assert answer.headers["www-authenticate"] == "Bearer"
