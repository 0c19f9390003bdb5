import pytest

from payres.core.store.work import Work
from payres.operator.api_keys import authenticate
from tests.cli.conftest import AsJson, Command, rows_of


@pytest.fixture(autouse=True)
def initialized(payres: Command) -> None:
    payres("init")


def test_create_prints_a_key_that_is_good(payres: Command, tx: Work) -> None:
    made = payres("api-key", "create", "Order book", "--scope", "payments:read", "--scope", "wallets:read")
    assert authenticate(tx, made.stdout.strip()).scopes == ["wallets:read", "payments:read"]
    assert made.stdout.strip() not in payres("api-key", "list", "--json").stdout


def test_list_shows_state_scopes_and_use(payres: Command, as_json: AsJson) -> None:
    made = as_json("api-key", "create", "Mine", "--scope", "audit:read", "--expires", "2100-01-01T00:00:00Z")
    [labels, cells] = rows_of(payres("api-key", "list"))
    assert labels == ["Key", "Name", "Scopes", "State", "Created (UTC)", "Expires (UTC)"]
    assert cells == [made["id"], "Mine", "audit:read", "valid", made["createdAt"], "2100-01-01T00:00:00.000Z"]
    revoked = as_json("api-key", "revoke", made["id"])
    assert (revoked["state"], revoked["revokedAt"] is not None) == ("revoked", True)
    assert as_json("api-key", "revoke", made["id"]) == revoked
    assert as_json("api-key", "list") == {"apiKeys": [revoked]}
    assert rows_of(payres("api-key", "list"))[1][3] == "revoked"
