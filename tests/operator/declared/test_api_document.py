"""The OpenAPI document against the program: answers are as documented."""

from typing import Any

import pytest
import requests
import schemathesis
from schemathesis.config import SchemathesisConfig

from payres.operator.api_keys import SCOPES
from payres.operator.declared.api import admin_endpoints
from tests.instance import Instance
from tests.openapi.test_schemathesis import run
from tests.operator.programs import BASE, DOCUMENT, Program

# Generators of clients make the names of functions from these.
IDS = {
    "api_keys": "create_api_key page_of_api_keys revoke_api_key",
    "assets": "deposit_liquidity list_assets list_liquidity list_rates remove_rate set_fee set_rate show_asset"
    " show_rate withdraw_fees withdraw_liquidity",
    "audit": "list_entries",
    "backups": "list_backups make",
    "events": "read",
    "exports": "export_ledger export_payments export_statement",
    "due": "give_up list_due retry show_due",
    "grants": "decide list_grants revoke show_grant",
    "keys": "add_key list_keys revoke_key",
    "ledger": "check list_entries",
    "orders": "list_orders show_order",
    "payment_history": "show_payment",
    "payments": "list_payments refund",
    "peers": "add_peer change_peer deposit list_peers list_settlements remove_peer show_peer withdraw write_note",
    "search": "search",
    "status": "show_status",
    "unresolved_packets": "list_unresolved resolve",
    "unresolved_payments": "list_unresolved_payments",
    "wallets": "change_wallet deposit list_movements make_password_link open_wallet page_of_wallets set_password"
    " separate show_wallet sign_out unlock withdraw",
    "webhooks": "add change list_attempts list_deliveries list_webhooks pause remove replay resume rotate show test",
}


def test_ids_of_operations_stay() -> None:
    found = {operation["operationId"] for item in DOCUMENT["paths"].values() for operation in item.values()}
    assert found >= {f"{noun}.{name}" for noun, names in IDS.items() for name in names.split()}


def test_paths_are_those_of_the_routes() -> None:
    described = {(method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item}
    assert described == {(one.method, BASE + one.path) for one in admin_endpoints() if one.scopes}


def test_server_shows_it_without_a_key(payres: Instance, program: Program) -> None:
    answer = program.http.get(f"{payres.base_url}{BASE}/openapi.json")
    assert answer.json() == {**DOCUMENT, "servers": [{"url": payres.base_url}]}


def test_every_scope_of_an_endpoint_is_one() -> None:
    scopes = (scope for one in admin_endpoints() for several in one.scopes for scope in several.split("|"))
    assert {*scopes} <= SCOPES.keys()


def test_nothing_undocumented_is_found(
    payres: Instance, program: Program, record_property: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some cases of each operation: none gets a 5xx, a status or a body that the document does not have."""
    # It reads all variables each time.
    monkeypatch.setattr(requests.sessions, "get_environ_proxies", lambda *_, **__: {})
    schema = schemathesis.openapi.from_dict(DOCUMENT, config=SchemathesisConfig(seed=1))
    schema.config.base_url = payres.base_url
    schema.config.headers = {"Authorization": f"Bearer {program.key}"}
    # Values at the bounds of each schema and beyond, and one method that no path has.
    schema.config.phases.coverage.unexpected_methods = {"TRACE"}
    schema.config.phases.fuzzing.enabled = schema.config.phases.stateful.enabled = False
    # Some rules are in no schema: wallets must exist, amounts must fit their assets.
    schema.config.checks.positive_data_acceptance.enabled = False
    made = run(schema)
    record_property("cases", made.cases)
    assert not made.faults, "\n\n".join(made.faults)
    assert made.cases >= 4 * len([one for one in admin_endpoints() if one.scopes])
    payres.check_ledger()
