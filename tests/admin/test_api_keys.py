import pytest

from payres.operator.api_keys import SCOPES, authenticate
from tests.admin.conftest import NewProgram, Program
from tests.admin.test_serving import error_of


def test_key_is_shown_once_and_stored_as_a_hash(program: Program) -> None:
    made = program.post("/api-keys", {"name": "Order book", "scopes": ["payments:read", "wallets:read"]})
    assert made["key"].startswith(f"payres_{made['id']}_")
    assert made["scopes"] == ["wallets:read", "payments:read"]
    [listed] = [one for one in program.get("/api-keys")["result"] if one["id"] == made["id"]]
    assert listed == {name: value for name, value in made.items() if name != "key"}
    secret = made["key"].split("_", 2)[2]
    assert program.instance.read(lambda work: authenticate(work, made["key"])).id == made["id"]
    stored = program.instance.read(lambda work: work.execute("SELECT * FROM api_key").fetchall())
    assert secret not in str(stored)
    assert program.audited()[0] == (
        f"api:{program.id}",
        "api_key.create",
        made["id"],
        {"name": "Order book", "scopes": ["wallets:read", "payments:read"]},
    )


def test_key_gives_no_more_than_it_has(new_program: NewProgram) -> None:
    maker = new_program("keys:write", "wallets:read")
    maker.post("/api-keys", {"name": "Less", "scopes": ["wallets:read"]})
    answer = maker.ask("POST", "/api-keys", {"name": "More", "scopes": ["wallets:read", "wallets:fund"]})
    details = error_of(answer, 403, "insufficient_access")
    assert (details["reason"], details["scope"]) == ("scope", "wallets:fund")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "a", "scopes": ["wallets"]}, "scopes"),
        ({"name": "a", "scopes": []}, "scopes"),
        ({"name": " ", "scopes": list(SCOPES)}, "name"),
        ({"name": "a", "scopes": list(SCOPES), "expiresAt": "2020-01-01T00:00:00Z"}, "expiresAt"),
        ({"name": "a", "scopes": list(SCOPES), "expiresAt": "tomorrow"}, "expiresAt"),
    ],
)
def test_key_that_cannot_be_is_refused(body: object, field: str, program: Program) -> None:
    assert error_of(program.ask("POST", "/api-keys", body), 400, "invalid_request")["field"] == field
