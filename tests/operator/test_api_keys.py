from copy import copy

import pytest

from payres.operator.api_keys import SCOPES, authenticate
from tests.helpers import Json
from tests.operator.declared.test_api import error_of
from tests.operator.programs import NewProgram, Program


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


def keys_by_state(program: Program, state: str) -> set[str]:
    return {one["id"] for one in program.get("/api-keys", first=100)["result"] if one["state"] == state}


def made_with(maker: Program, **members: str) -> tuple[Json, Program]:
    """A key that this program creates, and the program that uses it."""
    made = maker.post("/api-keys", {"name": "Made", "scopes": ["keys:read", "keys:write"], **members})
    has_it = copy(maker)
    has_it.key, has_it.id = made["key"], made["id"]
    return made, has_it


def test_key_ends_no_later_than_the_one_that_made_it(program: Program) -> None:
    soon, later = "2100-01-01T00:00:00.000Z", "2100-01-01T00:00:00.001Z"
    _, maker = made_with(program, expiresAt=soon)
    made, child = made_with(maker)
    assert (made["expiresAt"], made["madeBy"]) == (soon, maker.id)
    assert made_with(child, expiresAt="2099-01-01T00:00:00Z")[0]["expiresAt"] == "2099-01-01T00:00:00.000Z"
    body = {"name": "Made", "scopes": ["keys:read"], "expiresAt": later}
    details = error_of(child.ask("POST", "/api-keys", body), 400, "invalid_request")
    assert (details["field"], soon in details["hint"]) == ("expiresAt", True)


@pytest.mark.parametrize("keep_made", [False, True])
def test_key_ends_with_the_one_that_made_it_unless_told_otherwise(program: Program, keep_made: bool) -> None:
    _, maker = made_with(program)
    _, child = made_with(maker)
    _, of_child = made_with(child)
    query = "?keepMade=true" if keep_made else ""
    assert program.change("DELETE", f"/api-keys/{maker.id}{query}")["state"] == "revoked"
    revoked = {maker.id} if keep_made else {maker.id, child.id, of_child.id}
    assert keys_by_state(program, "revoked") & {maker.id, child.id, of_child.id} == revoked
    audited = [key for _, action, key, _ in program.audited() if action == "api_key.revoke"]
    assert set(audited[: len(revoked)]) == revoked
    assert child.ask("GET", "/api-keys").status_code == (200 if keep_made else 401)
    assert program.ask("DELETE", f"/api-keys/{maker.id}?keepMade=perhaps").status_code == 400


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
