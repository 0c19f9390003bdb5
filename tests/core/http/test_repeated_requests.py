"""What each operation does when it is repeated: the table in docs/integrating.md says it, and it is so."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from payres.core.http.routing import ROUTES
from payres.testing.clock import MovableClock
from tests.helpers import ROOT, Json, usd
from tests.instance import Instance, run_instance

ROW = re.compile(r"\| `(?P<methods>.*?)`(?P<how> with .*?)? \| (?P<answer>\d+(?: `\w+`)?) \| .+ \|")
DOCUMENT = (ROOT / "docs" / "integrating.md").read_text(encoding="utf-8")
SAID = {
    operation + (row["how"] or "").replace("`", ""): row["answer"].replace("`", "")
    for row in map(ROW.fullmatch, DOCUMENT.splitlines())
    if row is not None
    for operation in row["methods"].split("`, `")
}
READS = {"GET", "HEAD", "OPTIONS"}


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Instance, "clock_type", partial(MovableClock, frozen=True))
        with run_instance(tmp_path_factory.mktemp("still") / "payres.db") as instance:
            yield instance


def grant(instance: Instance) -> Json:
    """One for everything, with its token."""
    alice = instance.wallet("alice")
    return instance.client.obtain_grant(
        {"type": "incoming-payment", "actions": ["create", "complete"]},
        {"type": "quote", "actions": ["create"]},
        {"type": "outgoing-payment", "actions": ["create"], "identifier": alice},
    )


def bill(instance: Instance) -> str:
    return str(instance.client.create_incoming_payment(instance.wallet("bob"), None)["id"])


def rotating(instance: Instance) -> tuple[Any, ...]:
    token = grant(instance)["access_token"]
    return token["manage"], None, token["value"]


def following(instance: Instance) -> tuple[Any, ...]:
    alice = {"type": "outgoing-payment", "actions": ["create"], "identifier": instance.wallet("alice")}
    asked = instance.client.request_grant(alice, interact={"start": ["redirect"]}).json()
    instance.approve(asked["interact"]["redirect"])
    return asked["continue"]["uri"], None, asked["continue"]["access_token"]["value"]


def creating(path: str, body: Callable[[Instance], Json]) -> Callable[[Instance], tuple[Any, ...]]:
    return lambda instance: (path, body(instance), grant(instance)["access_token"]["value"])


def paying(instance: Instance) -> Json:
    quote = {
        "walletAddress": instance.wallet("alice"),
        "receiver": bill(instance),
        "method": "ilp",
        "debitAmount": usd(1),
    }
    token = grant(instance)["access_token"]["value"]
    made = instance.client.post("/quotes", quote, token).json()
    return {"walletAddress": instance.wallet("alice"), "quoteId": made["id"]}


# The arguments of each operation, for its first call and for the repeat.
ASKED: dict[str, Callable[[Instance], tuple[Any, ...]]] = {
    "POST /": lambda instance: (
        "/",
        {
            "client": instance.client.wallet_address,
            "access_token": {"access": [{"type": "quote", "actions": ["read"]}]},
        },
    ),
    "POST /continue/{id}": following,
    "DELETE /continue/{id}": following,
    "POST /token/{id}": rotating,
    "DELETE /token/{id}": rotating,
    "POST /incoming-payments": creating(
        "/incoming-payments", lambda instance: {"walletAddress": instance.wallet("bob")}
    ),
    "POST /incoming-payments/{id}/complete": lambda instance: (
        f"{bill(instance)}/complete",
        None,
        grant(instance)["access_token"]["value"],
    ),
    "POST /quotes": creating(
        "/quotes",
        lambda instance: {
            "walletAddress": instance.wallet("alice"),
            "receiver": bill(instance),
            "method": "ilp",
            "debitAmount": usd(1),
        },
    ),
    "POST /outgoing-payments with a quoteId": creating("/outgoing-payments", paying),
    "POST /outgoing-payments with a debitAmount": creating(
        "/outgoing-payments",
        lambda instance: {
            "walletAddress": instance.wallet("alice"),
            "incomingPayment": bill(instance),
            "debitAmount": usd(1),
        },
    ),
}


def test_each_operation_has_its_line() -> None:
    operations = {
        f"{method} {route.path.replace('//', '/')}"
        for route in ROUTES
        for method in route.handlers
        if method not in READS
    }
    assert operations == {name.partition(" with ")[0] for name in SAID.keys() - READS}
    assert SAID.keys() == ASKED.keys() | READS


@pytest.mark.parametrize("name", ASKED)
def test_repeat_does_what_the_documents_say(still: Instance, name: str) -> None:
    method, arguments = name.partition(" ")[0], ASKED[name](still)
    first = still.client.request(method, *arguments)
    still.clock.advance(1)
    again = still.client.request(method, *arguments)
    assert first.is_success, first.text
    code = "" if again.is_success else f" {again.json()['error']['code']}"
    assert f"{again.status_code}{code}" == SAID[name]
    if name in {"POST /continue/{id}", "POST /token/{id}"}:
        assert again.content == first.content
