"""A rotation or continuation whose answer was lost: the same client asks again, and gets the same token again."""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from payres.core.grants import tokens
from payres.core.protocol.clock import DAY, HOUR, SECOND
from payres.core.protocol.identifiers import hash_secret
from payres.core.protocol.limits import MAX_ENDED_TOKENS
from payres.core.signatures.jwk import generate_private_key, jwk_from_public_bytes
from payres.core.store.rows import number
from payres.operator.keys import add_key
from payres.testing.clock import MovableClock
from tests.helpers import Json, last_segment
from tests.instance import Instance, run_instance
from tests.signing_client import Client

LIFETIME = 600
DAY_SECONDS = DAY // SECOND
KINDS = ("rotation", "continuation", "poll", "subject")
REUSED = "401 invalid_client signature_reused"
GONE = {
    "rotation": "404 invalid_rotation None",
    "continuation": "404 invalid_continuation unknown_continuation",
    "poll": "401 request_denied already_issued",
    "subject": "404 invalid_continuation unknown_continuation",
}


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """An instance whose clock stands still until a test moves it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Instance, "clock_type", partial(MovableClock, frozen=True))
        with run_instance(tmp_path_factory.mktemp("still") / "payres.db", access_token_lifetime=LIFETIME) as instance:
            yield instance


class Request(NamedTuple):
    """A rotation or continuation, to be sent as often as the answer is lost."""

    instance: Instance
    url: str
    body: Json | None
    token: str
    grant_id: str
    grant: Json  # what continues it

    @classmethod
    def of(cls, instance: Instance, kind: str) -> "Request":
        alice = instance.wallet("alice")
        item = {"type": "outgoing-payment", "actions": ["create"], "identifier": alice}
        members: Json = {"interact": {"start": ["redirect"]}} if kind == "poll" else {}
        if kind == "subject":
            members |= {"access_token": None, "subject": {"sub_ids": [{"id": alice, "format": "uri"}]}}
        asked = instance.client.request_grant(item, **members).json()
        finished = instance.approve(asked["interact"]["redirect"])
        reference = parse_qs(urlsplit(finished).query)["interact_ref"][0] if finished else None
        body, grant = {"interact_ref": reference} if reference else None, asked["continue"]
        grant_id, continuing = last_segment(grant["uri"]), grant["access_token"]["value"]
        if kind != "rotation":
            return cls(instance, grant["uri"], body, continuing, grant_id, grant)
        given = instance.client.post(grant["uri"], body, continuing).json()["access_token"]
        return cls(instance, given["manage"], None, given["value"], grant_id, grant)

    def send(self, later: float = 0, by: Client | None = None, **changed: Any) -> httpx2.Response:
        self.instance.clock.advance(later)
        request = {"url": self.url, "body": self.body, "token": self.token} | changed
        return (by or self.instance.client).request("POST", **request)

    def use(self, token: Json, method: str = "GET") -> httpx2.Response:
        url = "/outgoing-payment-grant" if method == "GET" else token["manage"]
        return self.instance.client.request(method, url, token=token["value"])


def told(answer: httpx2.Response) -> str:
    if answer.is_success:
        return str(answer.status_code)
    error = answer.json()["error"]
    return f"{answer.status_code} {error['code']} {error['details'].get('reason')}"


@pytest.mark.parametrize("kind", KINDS)
def test_same_request_is_answered_again_until_the_token_was_used(still: Instance, kind: str) -> None:
    lost = Request.of(still, kind)
    first = lost.send(later=1)
    assert first.status_code == 200, first.text
    assert told(lost.send()) == REUSED  # byte for byte, by who has heard it, or has answered too soon
    again = [lost.send(later=later) for later in (1, LIFETIME - 1, LIFETIME + 1, 40 * DAY_SECONDS)]
    assert {(answer.status_code, answer.content) for answer in again} == {(200, first.content)}
    if kind == "subject":
        return
    token = again[-1].json()["access_token"]
    still.clock.advance(LIFETIME - 1)  # of the last answer
    assert told(lost.use(token)) == "200"
    assert told(lost.send(later=1)) == GONE[kind]
    assert told(lost.use(token, "POST")) == "200"  # it has expired, and is rotated
    assert told(lost.send(later=1)) == GONE[kind]


# What ends an answer that could be repeated, apart from the first use. What is left to its client is in the second.
ENDS: dict[str, Callable[[Request, Json], object]] = {
    "rotated": lambda lost, token: lost.use(token, "POST"),
    "revoked": lambda lost, token: lost.use(token, "DELETE"),
    "revoked at the old URL": lambda lost, token: lost.instance.client.delete(lost.url, lost.token),
    "cancelled": lambda lost, _: lost.instance.client.delete(lost.grant["uri"], lost.grant["access_token"]["value"]),
    "revoked by the owner": lambda lost, _: lost.instance.write(partial(tokens.revoke_grant, grant_id=lost.grant_id)),
    "refused for want of access": lambda lost, token: lost.instance.client.post("/quotes", {}, token["value"]),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_ended_is_not_answered_again(still: Instance, kind: str, end: str) -> None:
    lost = Request.of(still, kind)
    answer = lost.send().json()
    if kind == "subject" and end not in {"cancelled", "revoked by the owner"}:
        return
    if kind != "rotation" and end == "revoked at the old URL":
        return
    ENDS[end](lost, answer.get("access_token"))
    gone = GONE["continuation" if kind != "rotation" and end in {"cancelled", "revoked by the owner"} else kind]
    assert told(lost.send(later=1)) == gone
    if "access_token" in answer and end != "refused for want of access":
        assert told(lost.use(answer["access_token"])).startswith("401 invalid_token")


@pytest.mark.parametrize("kind", KINDS)
def test_answer_is_for_the_same_key_and_secret_alone(still: Instance, kind: str) -> None:
    lost, client = Request.of(still, kind), still.client
    first = lost.send()
    key = generate_private_key()
    jwk = jwk_from_public_bytes(f"of-{kind}", key.public_key().public_bytes_raw())
    still.write(lambda work: add_key(work, last_segment(client.wallet_address), jwk))
    with closing(Client(client.wallet_address, key, jwk, still.base_url, still.clock, still.approve)) as second:
        assert told(lost.send(later=1, by=second)) == GONE[kind]
    with closing(still.new_client(f"stranger-{kind}")) as stranger:
        assert told(lost.send(later=1, by=stranger)) == "401 invalid_client signature_mismatch"
    for changed in ({"token": None}, {"token": "x"}, {"body": {"interact_ref": "guess"}}):
        if kind != "rotation" or "body" not in changed:
            assert told(lost.send(later=1, **changed)).startswith("40"), changed
    assert lost.send(later=1).content == first.content


def test_rotation_with_another_secret_than_its_token_is_not_repeated(still: Instance) -> None:
    """Some clients rotate with an earlier token or none; nothing then encrypts the answer that others do not know."""
    lost = Request.of(still, "rotation")
    assert told(lost.send(token=None)) == "200"
    assert [told(lost.send(later=1, token=token)) for token in (None, lost.token)] == [GONE["rotation"]] * 2


def test_rotation_is_repeated_however_many_came_before_and_though_the_clock_was_set_back(still: Instance) -> None:
    """Of ended tokens the oldest are deleted: not the one that the client has."""
    lost = Request.of(still, "rotation")
    for _ in range(MAX_ENDED_TOKENS + 2):
        token = lost.send(later=1).json()["access_token"]
        lost = lost._replace(url=token["manage"], token=token["value"])
    still.clock.advance(-HOUR // SECOND)
    for _ in range(MAX_ENDED_TOKENS + 2):
        first = lost.send(later=1)
        assert lost.send(later=1).content == first.content
        token = first.json()["access_token"]
        lost = lost._replace(url=token["manage"], token=token["value"])
    still.clock.advance(HOUR // SECOND)


def test_nobody_else_can_read_a_stored_token(tmp_path: Path) -> None:
    with run_instance(tmp_path / "payres.db") as instance:
        answers = [Request.of(instance, kind).send().json() for kind in KINDS]
        sealed = "SELECT count(*) FROM access_token WHERE sealed NOT NULL"
        assert instance.read(lambda tx: number(tx, sealed)) == len(KINDS)
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for value in [answer["access_token"]["value"] for answer in answers if "access_token" in answer]:
        assert value.encode() not in stored
        assert hash_secret(value) in stored
