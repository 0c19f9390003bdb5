import json
from typing import Any

import msgspec
import pytest

from payres.errors import DomainError
from payres.grants.gnap import GrantRequest
from payres.wire import decode

GRANT_REQUEST = msgspec.json.Decoder(GrantRequest)
SPENDING = {"type": "outgoing-payment", "actions": ["create"], "identifier": "w"}


def test_unknown_members_are_taken_where_gnap_may_grow() -> None:
    token = {"label": "a", "access": [{"type": "quote", "actions": ["read"], "locations": []}]}
    body = {"client": "c", "display": {"name": "Shop"}, "access_token": token}
    asked = decode(GRANT_REQUEST, json.dumps(body).encode())
    assert asked.access_token
    assert asked.access_token.access[0].actions == ["read"]


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"client": {"walletAddress": "w", "display": {}}}, "client.display"),
        ({"access_token": {"access": [SPENDING | {"limit": {}}]}}, "access_token.access[0].limit"),
    ],
)
def test_misspelt_members_are_errors_where_they_would_matter(members: dict[str, Any], field: str) -> None:
    body = {"client": "w", "access_token": {"access": [SPENDING]}} | members
    with pytest.raises(DomainError) as error:
        decode(GRANT_REQUEST, json.dumps(body).encode())
    assert error.value.details == {"field": field}
