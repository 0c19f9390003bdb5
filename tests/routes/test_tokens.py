from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from payres.testing.client import Client
from payres.testing.instance import Instance
from tests.conftest import Refused
from tests.helpers import Json

QUOTE = {"type": "quote", "actions": ["create", "read"]}


def obtain(instance: Instance, client: Client | None = None) -> Json:
    token: Json = (client or instance.client).obtain_grant(QUOTE)["access_token"]
    return token


def is_good(client: Client, value: str) -> bool:
    return client.get("/quotes/none", value).status_code == 404


def test_rotate_answers_with_a_new_value_at_a_new_url(shared: Instance, refused: Refused) -> None:
    old = obtain(shared)
    answer = shared.client.post(old["manage"], None, old["value"])
    assert answer.status_code == 200
    assert answer.json().keys() == {"access_token"}
    new = answer.json()["access_token"]
    assert new == {
        "value": new["value"],
        "manage": new["manage"],
        "expires_in": shared.context.settings.access_token_lifetime,
        "access": [QUOTE],
    }
    assert new["value"] != old["value"]
    assert new["manage"] != old["manage"]
    assert new["manage"].startswith(f"{shared.base_url}/token/")
    assert new["value"] not in new["manage"]
    assert is_good(shared.client, new["value"])
    refused(shared.client.get("/quotes/none", old["value"]), 401, "invalid_token", reason="revoked_token")
    refused(shared.client.post(old["manage"], None, old["value"]), 404, "invalid_rotation")


def test_rotate_succeeds_once_of_many_at_the_same_time(shared: Instance) -> None:
    old = obtain(shared)
    clients = [
        Client(
            shared.client.wallet_address,
            shared.client.private_key,
            shared.client.jwk,
            shared.base_url,
            shared.clock,
            shared.approve,
        )
        for _ in range(4)
    ]
    with ThreadPoolExecutor(len(clients)) as pool:
        answers = list(pool.map(lambda client: client.post(old["manage"], None, old["value"]), clients))
    assert sorted(answer.status_code for answer in answers) == [200, 404, 404, 404]
    for client in clients:
        client.close()


@pytest.mark.parametrize("sent", [None, "none", "{continue}", "{ended}"])
@pytest.mark.parametrize(("method", "status"), [("POST", 200), ("DELETE", 204)])
def test_management_needs_no_more_than_the_clients_signature(
    shared: Instance, sent: str | None, method: str, status: int
) -> None:
    """An existing SDK sends the token it was given last, which may be none, a continuation token or one that ended."""
    granted = shared.client.obtain_grant(QUOTE)
    ended = obtain(shared)
    shared.client.delete(ended["manage"], ended["value"])
    others = {"continue": granted["continue"]["access_token"]["value"], "ended": ended["value"]}
    token = granted["access_token"]
    answer = shared.client.request(method, token["manage"], None, sent and sent.format(**others))
    assert answer.status_code == status
    assert not is_good(shared.client, token["value"])


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_management_refuses_another_token_in_force(shared: Instance, refused: Refused, method: str) -> None:
    token, other = obtain(shared), obtain(shared)
    answer = shared.client.request(method, token["manage"], None, other["value"])
    refused(answer, 401, "invalid_token", reason="other_token")
    assert is_good(shared.client, token["value"])
    assert is_good(shared.client, other["value"])


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_management_is_for_the_tokens_client(
    shared: Instance, anonymous: httpx2.Client, refused: Refused, method: str
) -> None:
    token = obtain(shared)
    other = shared.new_client(f"token-taker-{method.lower()}")
    for value in (None, token["value"]):
        answer = other.request(method, token["manage"], None, value)
        refused(answer, 401, "invalid_client", reason="signature_mismatch")
    unsigned = anonymous.request(method, token["manage"], headers={"authorization": f"GNAP {token['value']}"})
    refused(unsigned, 401, "invalid_client", reason="missing_signature")
    assert is_good(shared.client, token["value"])
