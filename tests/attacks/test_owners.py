"""Attacks on what others have: the bills of other clients, and the consent and the sign-in of wallet owners."""

from collections.abc import Callable
from contextlib import closing

import msgspec

from payres.signatures.jwk import generate_private_key, jwk_from_public_bytes
from payres.testing.client import Client
from payres.testing.instance import Instance
from tests.helpers import Json

Refused = Callable[..., Json]


def test_bill_completed_by_another_client(shared: Instance, refused: Refused) -> None:
    """A key that nobody has seen gets `complete` without consent. It ends no bill of others, and reads none."""
    bill = shared.client.create_incoming_payment(shared.wallet("bob"), metadata={"order": "secret"})["id"]
    private_key = generate_private_key()
    jwk = jwk_from_public_bytes("key-1", private_key.public_key().public_bytes_raw())
    about = ("", private_key, jwk, shared.base_url, shared.clock, shared.approve)
    with closing(Client(*about)) as thief:
        for item in (
            {"type": "incoming-payment", "actions": ["complete"]},
            {"type": "incoming-payment", "actions": ["complete", "read-all"], "identifier": shared.wallet("bob")},
        ):
            token = thief.grant(item, client={"jwk": msgspec.to_builtins(jwk)})
            answer = thief.post(f"{bill}/complete", None, token)
            refused(answer, 404, "not_found")
            assert "secret" not in answer.text
            missing = thief.post(f"{bill[:-12]}{'0' * 12}/complete", None, token)
            assert (missing.status_code, missing.text) == (answer.status_code, answer.text)
    reading = shared.client.grant({"type": "incoming-payment", "actions": ["read", "complete"]})
    assert shared.client.get(bill, reading).json()["completed"] is False
    assert shared.client.post(f"{bill}/complete", None, reading).json()["completed"] is True
