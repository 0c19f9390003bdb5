"""Which grant opens what: every endpoint of the resource server against every action of every type of access.

Each cell is tried by the client that made the resource, by another one, and by one known by its key alone; with a grant
that names the wallet address concerned, one that names none, and one that names another.
"""

from collections.abc import Iterator
from typing import get_args
from urllib.parse import quote as percent_encoded

import httpx2
import msgspec
import pytest

from payres.core.http.routing import ROUTES
from payres.core.protocol.gnap import INCOMING_ACTIONS, OUTGOING_ACTIONS, QUOTE_ACTIONS
from tests.conftest import Refused
from tests.helpers import Json, client_with_key, usd
from tests.instance import Instance, run_instance

Cell = tuple[str, str]  # who asks, and which wallet address the grant names

ACTIONS = {
    "incoming-payment": get_args(INCOMING_ACTIONS),
    "outgoing-payment": get_args(OUTGOING_ACTIONS),
    "quote": get_args(QUOTE_ACTIONS),
}
CALLERS = ("maker", "other", "key")
COVERS = ("this", "any", "another")

# What the words below mean: the answer when the grant covers the wallet address, to the maker of the resource and to
# others; and when it does not, again to both.
VERDICTS: dict[str, tuple[str, str, str, str]] = {
    "-": ("403 action", "403 action", "403 action", "403 action"),
    "make": ("201", "201", "403 identifier", "403 identifier"),
    "own": ("200", "404", "403 identifier", "404"),
    "all": ("200", "200", "403 identifier", "404"),
    "page": ("200 listed", "200 empty", "403 identifier", "403 identifier"),
    "pages": ("200 listed", "200 listed", "403 identifier", "403 identifier"),
    "sums": ("200", "200", "200", "200"),  # concerns the grant alone, whatever wallet address it names
}
MATRIX = """
                                        incoming-payment                               outgoing-payment                      quote
                                        create complete read read-all list list-all    create read read-all list list-all    create read read-all
POST /incoming-payments                 make   -        -    -        -    -           -      -    -        -    -           -      -    -
GET /incoming-payments                  -      -        -    -        page pages       -      -    -        -    -           -      -    -
GET /incoming-payments/{id}             -      -        own  all      -    -           -      -    -        -    -           -      -    -
POST /incoming-payments/{id}/complete   -      own      -    -        -    -           -      -    -        -    -           -      -    -
POST /outgoing-payments                 -      -        -    -        -    -           make   -    -        -    -           -      -    -
GET /outgoing-payments                  -      -        -    -        -    -           -      -    -        page pages       -      -    -
GET /outgoing-payments/{id}             -      -        -    -        -    -           -      own  all      -    -           -      -    -
GET /outgoing-payment-grant             -      -        -    -        -    -           sums   -    -        -    -           -      -    -
POST /quotes                            -      -        -    -        -    -           -      -    -        -    -           make   -    -
GET /quotes/{id}                        -      -        -    -        -    -           -      -    -        -    -           -      own  all
"""  # noqa: E501 - a table is read along its lines


def rows() -> Iterator[tuple[str, str, str, str]]:
    """The cells of the table: endpoint, type, action, verdict."""
    types, header, *lines = MATRIX.strip("\n").splitlines()
    columns = [(kind, action) for kind in types.split() for action in ACTIONS[kind]]
    assert header.split() == [action for _, action in columns]
    for line in lines:
        method, path, *verdicts = line.split()
        assert len(verdicts) == len(columns), line
        for (kind, action), verdict in zip(columns, verdicts, strict=True):
            yield f"{method} {path}", kind, action, verdict


ROWS = list(rows())
NEEDING_ACCESS = ("/incoming-payments", "/outgoing-payment", "/quotes")


def test_every_endpoint_and_every_action_has_its_row() -> None:
    """An endpoint that asks for access, or an action, that is added fails here until it is decided who may use it."""
    guarded = {
        f"{method} {route.path.replace('//', '/')}"  # an address that is taken in two spellings is one endpoint
        for route in ROUTES
        if route.path.startswith(NEEDING_ACCESS)
        for method in route.handlers
        if method != "HEAD"
    }
    assert {endpoint for endpoint, *_ in ROWS} == guarded
    cells = [(endpoint, kind, action) for endpoint, kind, action, _ in ROWS]
    assert len(set(cells)) == len(cells) == len(guarded) * sum(map(len, ACTIONS.values()))
    # Each action opens something, and each endpoint is opened by something.
    opening = [(endpoint, kind, action) for endpoint, kind, action, verdict in ROWS if verdict != "-"]
    assert {endpoint for endpoint, *_ in opening} == guarded
    assert {tuple(one) for _, *one in opening} == {(kind, action) for kind in ACTIONS for action in ACTIONS[kind]}


class Scene:
    """An incoming payment, an outgoing payment and a quote of the wallet `alice`, and who may come to them."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.alice, self.bob = instance.wallet("alice"), instance.wallet("bob")
        by_key = client_with_key(instance)
        self.clients = {"maker": instance.client, "other": instance.new_client("other"), "key": by_key}
        maker = instance.client
        self.receiver = maker.create_incoming_payment(self.bob)["id"]
        quote = maker.create_quote(self.alice, self.receiver, debitAmount=usd(2))
        self.ids = {
            "incoming-payments": maker.create_incoming_payment(self.alice)["id"],
            "outgoing-payments": maker.create_outgoing_payment(self.alice, quote["id"])["id"],
            "quotes": maker.create_quote(self.alice, self.receiver, debitAmount=usd(1))["id"],
        }
        self._tokens: dict[tuple[str, ...], str] = {}

    def close(self) -> None:
        self.clients["key"].close()

    def token(self, caller: str, cover: str, *accesses: tuple[str, str]) -> str:
        """A token of the caller's for one action of each type, on this wallet address, any or another."""
        asked = (caller, cover, *("/".join(access) for access in accesses))
        if asked not in self._tokens:
            named = {"this": {"identifier": self.alice}, "another": {"identifier": self.bob}}.get(cover, {})
            items = [{"type": kind, "actions": [action]} | named for kind, action in accesses]
            self._tokens[asked] = self.grant(caller, *items)
        return self._tokens[asked]

    def grant(self, caller: str, *items: Json) -> str:
        client = self.clients[caller]
        as_itself = {"client": {"jwk": msgspec.to_builtins(client.jwk)}} if caller == "key" else {}
        return client.grant(*items, **as_itself)

    def request(self, caller: str, endpoint: str, token: str) -> httpx2.Response:
        """The endpoint's answer, about the wallet `alice` and what it has."""
        method, path = endpoint.split()
        collection = path.split("/")[1]
        url = path.replace(f"/{collection}/{{id}}", self.ids[collection]) if "{id}" in path else path
        if endpoint in {"GET /incoming-payments", "GET /outgoing-payments"}:
            url += f"?wallet-address={percent_encoded(self.alice, '')}"
        paying = {"incomingPayment": self.receiver, "debitAmount": usd(1)}
        quoting = {"receiver": self.receiver, "method": "ilp", "debitAmount": usd(1)}
        made: Json = {"POST /incoming-payments": {}, "POST /outgoing-payments": paying, "POST /quotes": quoting}
        body = {"walletAddress": self.alice} | made[endpoint] if endpoint in made else None
        return self.clients[caller].request(method, url, body, token)

    def listed(self, answer: httpx2.Response, endpoint: str) -> bool:
        """Whether the resource is on the page; a page of one client's never has what others made."""
        return self.ids[endpoint.split("/")[1]] in [item["id"] for item in answer.json()["result"]]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Its tokens last for a day, so that they are asked for once."""
    path = tmp_path_factory.mktemp("scene") / "payres.db"
    with run_instance(path, access_token_lifetime=86400) as instance:
        scene = Scene(instance)
        yield scene
        scene.close()


def told(scene: Scene, refused: Refused, endpoint: str, answer: httpx2.Response) -> str:
    """An answer in short, as in VERDICTS."""
    if answer.status_code == 403:
        return f"403 {refused(answer, 403, 'insufficient_access')['details']['reason']}"
    if answer.status_code == 404:
        refused(answer, 404, "not_found")
    if answer.status_code == 200 and "result" in answer.json():
        return "200 listed" if scene.listed(answer, endpoint) else "200 empty"
    return str(answer.status_code)


def can_ask(caller: str, cover: str, kind: str, action: str) -> bool:
    """Whether there is such a grant at all: what needs consent names a wallet address, and a key cannot have it."""
    needs_consent = kind == "outgoing-payment" or action == "list-all"
    return not (needs_consent and (caller == "key" or cover == "any"))


def expected_of(verdict: str, caller: str, cover: str) -> str:
    makers, others, makers_uncovered, others_uncovered = VERDICTS[verdict]
    if cover == "another":
        return makers_uncovered if caller == "maker" else others_uncovered
    return makers if caller == "maker" else others


@pytest.mark.parametrize(("endpoint", "kind", "action", "verdict"), ROWS)
def test_access(scene: Scene, refused: Refused, endpoint: str, kind: str, action: str, verdict: str) -> None:
    cells = [(caller, cover) for caller in CALLERS for cover in COVERS if can_ask(caller, cover, kind, action)]
    found: dict[Cell, str] = {}
    for caller, cover in cells:
        answer = scene.request(caller, endpoint, scene.token(caller, cover, (kind, action)))
        found[caller, cover] = told(scene, refused, endpoint, answer)
    assert found == {(caller, cover): expected_of(verdict, caller, cover) for caller, cover in cells}
    assert found


@pytest.mark.parametrize("endpoint", sorted({endpoint for endpoint, *_ in ROWS}))
def test_all_other_access_together_opens_nothing(scene: Scene, refused: Refused, endpoint: str) -> None:
    """Actions do not add up to another one, not even the whole of the other types."""
    opening = {(kind, action) for one, kind, action, verdict in ROWS if one == endpoint and verdict != "-"}
    items = [
        {"type": kind, "actions": rest, "identifier": scene.alice}
        for kind, actions in ACTIONS.items()
        if (rest := [action for action in actions if (kind, action) not in opening])
    ]
    refused(scene.request("maker", endpoint, scene.grant("maker", *items)), 403, "insufficient_access", reason="action")


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("endpoint", "kind", "actions", "expected"),
    [
        # Each item counts for its own wallet address, whichever comes first.
        ("GET /incoming-payments/{id}", "incoming-payment", {"this": "read", "another": "read-all"}, "404"),
        ("GET /incoming-payments/{id}", "incoming-payment", {"this": "read-all", "another": "read"}, "200"),
        ("GET /incoming-payments/{id}", "incoming-payment", {"any": "read", "another": "read-all"}, "404"),
        ("GET /incoming-payments/{id}", "incoming-payment", {"any": "read-all", "this": "read"}, "200"),
        ("GET /quotes/{id}", "quote", {"this": "create", "another": "read-all"}, "404"),
        ("GET /quotes/{id}", "quote", {"this": "read", "any": "read-all"}, "200"),
        ("GET /incoming-payments", "incoming-payment", {"this": "list-all", "another": "list"}, "200 listed"),
        ("GET /incoming-payments", "incoming-payment", {"this": "list", "any": "read-all"}, "200 empty"),
        ("POST /quotes", "quote", {"this": "read", "another": "create"}, "403 identifier"),
        ("POST /quotes", "quote", {"any": "create", "another": "create"}, "201"),
    ],
)
def test_items_of_one_grant_count_each_for_its_wallet_address(
    scene: Scene, refused: Refused, endpoint: str, kind: str, actions: dict[str, str], expected: str, order: int
) -> None:
    names: dict[str, Json] = {"this": {"identifier": scene.alice}, "another": {"identifier": scene.bob}, "any": {}}
    items = [{"type": kind, "actions": [action]} | names[cover] for cover, action in actions.items()]
    answer = scene.request("other", endpoint, scene.grant("other", *items[::order]))
    assert told(scene, refused, endpoint, answer) == expected


def test_what_a_key_made_is_its_own(scene: Scene, refused: Refused) -> None:
    """Neither a wallet address nor another key sees it, and the key sees nothing else."""
    client = scene.clients["key"]
    body = {"walletAddress": scene.alice}
    made = client.post("/incoming-payments", body, scene.token("key", "this", ("incoming-payment", "create"))).json()
    reading = ("incoming-payment", "read")
    assert client.get(made["id"], scene.token("key", "any", reading)).json()["id"] == made["id"]
    refused(client.get(made["id"], scene.token("key", "another", reading)), 403, "insufficient_access")
    for caller in ("maker", "other"):
        token = scene.token(caller, "any", reading)
        refused(scene.clients[caller].get(made["id"], token), 404, "not_found")
    listing = scene.token("key", "any", ("incoming-payment", "list"))
    page = client.get(f"/incoming-payments?wallet-address={percent_encoded(scene.alice, '')}", listing).json()
    assert made["id"] in [item["id"] for item in page["result"]]
    assert scene.ids["incoming-payments"] not in [item["id"] for item in page["result"]]


@pytest.mark.parametrize("kind", ["incoming-payments", "quotes", "outgoing-payments"])
def test_what_is_hidden_looks_like_what_is_not_there(scene: Scene, kind: str) -> None:
    """The same answer, word for word, so that nobody learns which identifiers exist."""
    action = (kind.removesuffix("s"), "read")
    token = scene.token("other", "this", action)
    hidden, missing = (
        scene.clients["other"].get(url, token)
        for url in (scene.ids[kind], f"/{kind}/{'0' * 8}-{scene.ids[kind][-27:]}")
    )
    assert (hidden.status_code, hidden.json()) == (missing.status_code, missing.json())
    assert hidden.status_code == 404
    assert hidden.headers.keys() == missing.headers.keys()
