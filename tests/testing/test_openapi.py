"""The OpenAPI document of the control API. Each answer in these tests is held against it (sandboxes.py)."""

import httpx2

from payres.testing.openapi import control_document
from tests.helpers import TIMEOUT
from tests.testing.sandboxes import Sandbox


def test_no_schema_has_the_name_of_its_member() -> None:
    """openapi-python-client makes a variable of each, in one scope."""
    for name, schema in control_document("http://127.0.0.1")["components"]["schemas"].items():
        assert name.lower() not in {member.replace("_", "").lower() for member in schema.get("properties", {})}


def test_who_is_admitted_reads_it_without_the_token(sandbox: Sandbox) -> None:
    answer = httpx2.get(f"{sandbox.control.base_url}openapi.json", timeout=TIMEOUT)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == control_document(sandbox.base_url)
    answer = httpx2.get(f"{sandbox.control.base_url}openapi.json", headers={"Host": "elsewhere.example"})
    assert answer.status_code == 404
