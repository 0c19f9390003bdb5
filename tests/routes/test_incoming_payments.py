import re
from contextlib import closing
from typing import Any

import httpx2
import msgspec
import pytest

from payres.clock import format_time
from payres.testing.client import Client
from payres.testing.instance import Instance
from tests.conftest import Refused
from tests.helpers import client_with_key


def token_for(instance: Instance, *actions: str, wallet: str | None = "bob", client: Client | None = None) -> str:
    identifier = {"identifier": instance.wallet(wallet)} if wallet else {}
    return (client or instance.client).grant({"type": "incoming-payment", "actions": list(actions), **identifier})


def create(instance: Instance, token: str, **members: Any) -> httpx2.Response:
    body = {"walletAddress": instance.wallet("bob")} | members
    return instance.client.post("/incoming-payments", body, token)


def in_future(instance: Instance, seconds: int) -> str:
    return format_time(instance.clock.now() + seconds * 1_000_000)


def test_create_says_how_late_a_payment_may_expire(shared: Instance, refused: Refused) -> None:
    lifetime = shared.context.settings.incoming_payment_lifetime
    token = token_for(shared, "create")
    assert create(shared, token, expiresAt=in_future(shared, lifetime)).status_code == 201
    late = create(shared, token, expiresAt=in_future(shared, lifetime + 60))
    latest = re.search(r"no later than (\S+)$", refused(late, 400, "invalid_expiry")["details"]["hint"])
    assert latest is not None
    assert create(shared, token, expiresAt=latest[1]).status_code == 201


def test_metadata_can_be_read_by_whoever_knows_the_url(shared: Instance, anonymous: httpx2.Client) -> None:
    """As docs/integrating.md says: servers that pay need to read what they pay, so nobody is asked."""
    url = shared.client.create_incoming_payment(shared.wallet("bob"), metadata={"order": "17"})["id"]
    access = {"type": "incoming-payment", "actions": ["read-all"]}
    with closing(client_with_key(shared)) as nobody:
        token = nobody.grant(access, client={"jwk": msgspec.to_builtins(nobody.jwk)}, interact=None)
        assert nobody.get(url, token).json()["metadata"] == {"order": "17"}
    assert "metadata" not in anonymous.get(url).json()


@pytest.mark.parametrize("body", [b"done", b"{", b"[]", b'"text"', b"null", b'{"a":1,"a":2}'])
def test_complete_takes_no_body_that_is_no_json_object(shared: Instance, refused: Refused, body: bytes) -> None:
    url = shared.client.create_incoming_payment(shared.wallet("bob"))["id"]
    token = token_for(shared, "complete")
    refused(shared.client.request("POST", f"{url}/complete", token=token, raw=body), 400, "invalid_request")
    as_text = {"content-type": "text/plain"}
    answer = shared.client.request("POST", f"{url}/complete", token=token, raw=body, headers=as_text)
    refused(answer, 415, "unsupported_media_type")
    for taken in (b"{}", b'{"note":"done"}', b""):
        answer = shared.client.request("POST", f"{url}/complete", token=token, raw=taken)
        assert (answer.status_code, answer.json()["completed"]) == (200, True)


def test_complete_takes_no_body_of_any_type(shared: Instance) -> None:
    """Some clients name a media type for a body that they do not send."""
    url = shared.client.create_incoming_payment(shared.wallet("bob"))["id"]
    answer = shared.client.request(
        "POST", f"{url}/complete", token=token_for(shared, "complete"), headers={"content-type": "text/plain"}
    )
    assert answer.status_code == 200
