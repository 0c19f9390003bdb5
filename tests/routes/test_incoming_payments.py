import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from urllib.parse import quote
from uuid import UUID

import httpx2
import msgspec
import pytest

from payres.clock import format_time, parse_time
from payres.operator import wallets
from payres.signatures.jwk import generate_private_key, jwk_from_public_bytes
from payres.testing.client import Client
from payres.testing.instance import Instance
from tests.helpers import Json, usd

Refused = Callable[..., Json]

MEMBERS = {"id", "walletAddress", "completed", "receivedAmount", "expiresAt", "createdAt"}
ILP_ADDRESS = re.compile(r"test\.payres\.[A-Za-z0-9_-]+")
SECRET = re.compile(r"[A-Za-z0-9_-]{43}")
DAY = 86_400


def token_for(instance: Instance, *actions: str, wallet: str | None = "bob", client: Client | None = None) -> str:
    identifier = {"identifier": instance.wallet(wallet)} if wallet else {}
    return (client or instance.client).grant({"type": "incoming-payment", "actions": list(actions), **identifier})


def create(instance: Instance, token: str, **members: Any) -> httpx2.Response:
    body = {"walletAddress": instance.wallet("bob")} | members
    return instance.client.post("/incoming-payments", body, token)


def in_future(instance: Instance, seconds: int) -> str:
    return format_time(instance.clock.now() + seconds * 1_000_000)


def list_of(instance: Instance, token: str, query: str = "", wallet: str = "bob") -> httpx2.Response:
    return instance.client.get(f"/incoming-payments?wallet-address={quote(instance.wallet(wallet), '')}{query}", token)


def test_create_answers_with_the_payment_and_its_methods(shared: Instance) -> None:
    expires_at = in_future(shared, 60)
    answer = create(
        shared,
        token_for(shared, "create"),
        incomingAmount=usd(2500),
        expiresAt=expires_at,
        metadata={"externalRef": "INV2022-02-0137"},
    )
    assert answer.status_code == 201
    payment = answer.json()
    identifier, created_at, methods = payment.pop("id"), payment.pop("createdAt"), payment.pop("methods")
    assert payment == {
        "walletAddress": shared.wallet("bob"),
        "completed": False,
        "incomingAmount": usd(2500),
        "receivedAmount": usd(0),
        "expiresAt": expires_at,
        "metadata": {"externalRef": "INV2022-02-0137"},
    }
    prefix, _, last = identifier.rpartition("/")
    assert prefix == f"{shared.base_url}/incoming-payments"
    assert UUID(last).version == 7
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", created_at)
    assert abs(parse_time(created_at) - shared.clock.now()) < 10_000_000
    [method] = methods
    assert method.keys() == {"type", "ilpAddress", "sharedSecret"}
    assert method["type"] == "ilp"
    assert ILP_ADDRESS.fullmatch(method["ilpAddress"])
    assert SECRET.fullmatch(method["sharedSecret"])


def test_create_needs_no_optional_member(shared: Instance) -> None:
    payment = create(shared, token_for(shared, "create")).json()
    assert payment.keys() == MEMBERS | {"methods"}
    lasts = parse_time(payment["expiresAt"]) - parse_time(payment["createdAt"])
    assert lasts == shared.context.settings.incoming_payment_lifetime * 1_000_000


def test_create_gives_each_payment_details_of_its_own(shared: Instance) -> None:
    token = token_for(shared, "create")
    [one], [other] = (create(shared, token).json()["methods"] for _ in range(2))
    assert one["ilpAddress"] != other["ilpAddress"]
    assert one["sharedSecret"] != other["sharedSecret"]


def test_create_takes_the_wallet_address_from_the_grant(shared: Instance, refused: Refused) -> None:
    answer = shared.client.post("/incoming-payments", {}, token_for(shared, "create"))
    assert (answer.status_code, answer.json()["walletAddress"]) == (201, shared.wallet("bob"))
    unnamed = shared.client.post("/incoming-payments", {}, token_for(shared, "create", wallet=None))
    refused(unnamed, 400, "invalid_request", field="walletAddress")


@pytest.mark.parametrize("spelling", ["{base}/bob/", "{upper}/bob", "{base}/BOB"])
def test_create_knows_the_wallet_address_in_other_spellings(shared: Instance, spelling: str) -> None:
    wallet_address = spelling.format(base=shared.base_url, upper=shared.base_url.upper())
    answer = create(shared, token_for(shared, "create"), walletAddress=wallet_address)
    assert (answer.status_code, answer.json().get("walletAddress")) == (201, shared.wallet("bob"))


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"": None, "list": [1, 2.5, True], "nested": {"a": {"b": "ä€😀"}}},
        {"big": 10**30, "small": 1e-300, "escaped": 'quote " and \\ and \n'},
    ],
)
def test_metadata_comes_back_as_it_was_sent(shared: Instance, metadata: Json) -> None:
    payment = create(shared, token_for(shared, "create", "read"), metadata=metadata).json()
    assert payment["metadata"] == metadata
    read = shared.client.get(payment["id"], token_for(shared, "read"))
    assert read.json()["metadata"] == metadata


@pytest.mark.parametrize("value", ["1", "9223372036854775808", "18446744073709551615"])
def test_incoming_amount_spans_the_64_bits_of_the_interface(shared: Instance, value: str) -> None:
    assert create(shared, token_for(shared, "create"), incomingAmount=usd(value)).json()["incomingAmount"] == usd(value)


@pytest.mark.parametrize(
    ("members", "code", "field"),
    [
        ({"incomingAmount": usd("0")}, "invalid_amount", "incomingAmount.value"),
        ({"incomingAmount": usd("-1")}, "invalid_amount", "incomingAmount.value"),
        ({"incomingAmount": usd("1.5")}, "invalid_amount", "incomingAmount.value"),
        ({"incomingAmount": usd("0x10")}, "invalid_amount", "incomingAmount.value"),
        ({"incomingAmount": usd("")}, "invalid_amount", "incomingAmount.value"),
        ({"incomingAmount": usd("18446744073709551616")}, "invalid_amount", "incomingAmount.value"),
        ({"incomingAmount": usd(1) | {"assetCode": "EUR"}}, "invalid_amount", "incomingAmount"),
        ({"incomingAmount": usd(1) | {"assetCode": "usd"}}, "invalid_amount", "incomingAmount"),
        ({"incomingAmount": usd(1) | {"assetScale": 3}}, "invalid_amount", "incomingAmount"),
        ({"incomingAmount": usd(1) | {"value": 1}}, "invalid_request", "incomingAmount.value"),
        ({"incomingAmount": usd(1) | {"assetScale": 256}}, "invalid_request", "incomingAmount.assetScale"),
        ({"incomingAmount": usd(1) | {"assetScale": "2"}}, "invalid_request", "incomingAmount.assetScale"),
        ({"incomingAmount": {"value": "1", "assetCode": "USD"}}, "invalid_request", "incomingAmount.assetScale"),
        ({"incomingAmount": None}, "invalid_request", "incomingAmount"),
        ({"expiresAt": "2020-01-01T00:00:00Z"}, "invalid_expiry", "expiresAt"),
        ({"expiresAt": "9999-12-31T23:59:59Z"}, "invalid_expiry", "expiresAt"),
        ({"expiresAt": "2999-01-01T00:00:00"}, "invalid_expiry", "expiresAt"),
        ({"expiresAt": "tomorrow"}, "invalid_expiry", "expiresAt"),
        ({"expiresAt": 1}, "invalid_request", "expiresAt"),
        ({"metadata": []}, "invalid_request", "metadata"),
        ({"metadata": "text"}, "invalid_request", "metadata"),
        ({"metadata": None}, "invalid_request", "metadata"),
        ({"walletAddress": None}, "invalid_request", "walletAddress"),
        ({"walletAddress": ""}, "invalid_request", "walletAddress"),
        ({"walletAddress": "http://elsewhere.example/bob"}, "invalid_request", "walletAddress"),
        ({"walletAddress": "bob"}, "invalid_request", "walletAddress"),
        ({"description": "for lunch"}, "invalid_request", "description"),
    ],
)
def test_create_refuses_a_body_that_breaks_a_rule(
    shared: Instance, refused: Refused, members: Json, code: str, field: str
) -> None:
    refused(create(shared, token_for(shared, "create", wallet=None), **members), 400, code, field=field)


def test_create_says_how_late_a_payment_may_expire(shared: Instance, refused: Refused) -> None:
    lifetime = shared.context.settings.incoming_payment_lifetime
    token = token_for(shared, "create")
    assert create(shared, token, expiresAt=in_future(shared, lifetime)).status_code == 201
    late = create(shared, token, expiresAt=in_future(shared, lifetime + 60))
    latest = re.search(r"no later than (\S+)$", refused(late, 400, "invalid_expiry")["details"]["hint"])
    assert latest is not None
    assert create(shared, token, expiresAt=latest[1]).status_code == 201


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"text"', b"null", b"\xff\xfe", b'{"metadata":{"a":"\\ud800"}}', b"[" * 5000]
)
def test_create_refuses_what_is_no_json_object(shared: Instance, refused: Refused, body: bytes) -> None:
    answer = shared.client.request("POST", "/incoming-payments", raw=body, token=token_for(shared, "create"))
    refused(answer, 400, "invalid_request")


def test_create_refuses_an_inactive_wallet_address(shared: Instance, refused: Refused) -> None:
    wallet_address = shared.create_wallet("closed")
    token = token_for(shared, "create", wallet="closed")
    shared.write(lambda tx: wallets.deactivate(tx, "closed"))
    answer = create(shared, token, walletAddress=wallet_address)
    refused(answer, 400, "invalid_request", field="walletAddress")


def test_read_shows_its_maker_the_payment_with_methods(shared: Instance) -> None:
    token = token_for(shared, "create", "read")
    created = create(shared, token, incomingAmount=usd(100)).json()
    answer = shared.client.get(created["id"], token)
    assert (answer.status_code, answer.json()) == (200, created)


def test_read_without_authorization_shows_the_public_form(shared: Instance, anonymous: httpx2.Client) -> None:
    created = create(shared, token_for(shared, "create"), incomingAmount=usd(100)).json()
    answer = anonymous.get(created["id"])
    assert answer.status_code == 200
    assert answer.json() == {"receivedAmount": usd(0), "authServer": f"{shared.base_url}/"}


def test_read_hides_other_clients_payments_unless_all_may_be_read(shared: Instance, refused: Refused) -> None:
    other = shared.new_client("reader")
    created = create(shared, token_for(shared, "create")).json()
    refused(other.get(created["id"], token_for(shared, "read", client=other)), 404, "not_found")
    refused(other.get(created["id"], token_for(shared, "create", "complete", client=other)), 403, "insufficient_access")
    allowed = other.get(created["id"], token_for(shared, "read-all", client=other))
    assert (allowed.status_code, allowed.json()) == (200, created)
    elsewhere = token_for(shared, "read-all", wallet="alice", client=other)
    refused(other.get(created["id"], elsewhere), 404, "not_found")


@pytest.mark.parametrize("identifier", ["01a1fc79-0911-70a0-a0fa-6dccf4c9252b", "none", "%00", "%ff", "..%2f", "😀"])
def test_read_does_not_find_what_is_not_there(
    shared: Instance, anonymous: httpx2.Client, refused: Refused, identifier: str
) -> None:
    path = f"/incoming-payments/{identifier}"
    refused(shared.client.get(path, token_for(shared, "read-all", wallet=None)), 404, "not_found")
    refused(anonymous.get(shared.base_url + path), 404, "not_found")


def test_expired_payment_stays_readable_and_takes_nothing(shared: Instance, refused: Refused) -> None:
    created = create(shared, token_for(shared, "create"), expiresAt=in_future(shared, 30)).json()
    shared.clock.advance(31)
    read = shared.client.get(created["id"], token_for(shared, "read")).json()
    assert read == created | {"methods": []}
    complete = shared.client.post(f"{created['id']}/complete", None, token_for(shared, "complete"))
    refused(complete, 409, "wrong_state")
    quote_token = shared.client.grant({"type": "quote", "actions": ["create"], "identifier": shared.wallet("alice")})
    body = {"walletAddress": shared.wallet("alice"), "receiver": created["id"], "method": "ilp", "debitAmount": usd(1)}
    refused(shared.client.post("/quotes", body, quote_token), 400, "invalid_receiver", field="receiver")


def test_complete_ends_the_payment_and_may_be_repeated(shared: Instance, refused: Refused) -> None:
    created = create(shared, token_for(shared, "create"), incomingAmount=usd(100), metadata={"a": 1}).json()
    token = token_for(shared, "complete", "read")
    del created["methods"]
    for _ in range(2):
        answer = shared.client.post(f"{created['id']}/complete", None, token)
        assert (answer.status_code, answer.json()) == (200, created | {"completed": True})
    read = shared.client.get(created["id"], token)
    assert read.json() == created | {"completed": True, "methods": []}
    quote_token = shared.client.grant({"type": "quote", "actions": ["create"], "identifier": shared.wallet("alice")})
    body = {"walletAddress": shared.wallet("alice"), "receiver": created["id"], "method": "ilp"}
    refused(shared.client.post("/quotes", body, quote_token), 400, "invalid_receiver", field="receiver")


def test_metadata_can_be_read_by_whoever_knows_the_url(shared: Instance, anonymous: httpx2.Client) -> None:
    """As docs/integrating.md says: servers that pay need to read what they pay, so nobody is asked."""
    url = shared.client.create_incoming_payment(shared.wallet("bob"), metadata={"order": "17"})["id"]
    key = generate_private_key()
    jwk = jwk_from_public_bytes("key", key.public_key().public_bytes_raw())
    nobody = Client("", key, jwk, shared.base_url, shared.clock, shared.approve)
    access = {"type": "incoming-payment", "actions": ["read-all"]}
    token = nobody.grant(access, client={"jwk": msgspec.to_builtins(jwk)}, interact=None)
    assert nobody.get(url, token).json()["metadata"] == {"order": "17"}
    nobody.close()
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


def test_complete_is_for_the_client_that_created_it(shared: Instance, refused: Refused) -> None:
    other = shared.new_client("cashier")
    url = create(shared, token_for(shared, "create")).json()["id"]
    complete = f"{url}/complete"
    refused(other.post(complete, None, token_for(shared, "read-all", client=other)), 403, "insufficient_access")
    refused(other.post(complete, None, token_for(shared, "complete", wallet="alice", client=other)), 404, "not_found")
    refused(other.post(complete, None, token_for(shared, "complete", client=other)), 404, "not_found")
    assert shared.client.post(complete, None, token_for(shared, "complete")).json()["completed"] is True
    missing = f"/incoming-payments/{UUID(int=0)}/complete"
    refused(other.post(missing, None, token_for(shared, "complete", client=other)), 404, "not_found")


def test_list_shows_payments_without_methods_newest_first(shared: Instance) -> None:
    shared.create_wallet("shelf")
    token = token_for(shared, "create", "list", "complete", wallet="shelf")
    created = [
        create(
            shared, token, walletAddress=shared.wallet("shelf"), incomingAmount=usd(value), metadata={"n": value}
        ).json()
        for value in (1, 2)
    ]
    shared.client.post(f"{created[0]['id']}/complete", None, token)
    answer = list_of(shared, token, wallet="shelf")
    assert answer.status_code == 200
    newest, oldest = ({name: value for name, value in item.items() if name != "methods"} for item in created[::-1])
    assert answer.json() == {
        "pagination": {
            "startCursor": newest["id"].rpartition("/")[2],
            "endCursor": oldest["id"].rpartition("/")[2],
            "hasNextPage": False,
            "hasPreviousPage": False,
        },
        "result": [newest, oldest | {"completed": True}],
    }


def test_list_of_nothing_has_no_cursors(shared: Instance) -> None:
    shared.create_wallet("empty")
    assert list_of(shared, token_for(shared, "list", wallet="empty"), wallet="empty").json() == {
        "pagination": {"hasNextPage": False, "hasPreviousPage": False},
        "result": [],
    }


def test_list_shows_a_client_its_own_unless_it_may_list_all(shared: Instance) -> None:
    shared.create_wallet("common")
    other = shared.new_client("lister")
    mine = create(shared, token_for(shared, "create", wallet="common"), walletAddress=shared.wallet("common")).json()
    url = f"/incoming-payments?wallet-address={quote(shared.wallet('common'), '')}"
    assert other.get(url, token_for(shared, "list", wallet="common", client=other)).json()["result"] == []
    seen = other.get(url, token_for(shared, "list-all", wallet="common", client=other)).json()["result"]
    assert [item["id"] for item in seen] == [mine["id"]]


@pytest.fixture(scope="session")
def shelf(shared: Instance) -> tuple[list[str], Callable[[str], Json]]:
    """The ids of 25 payments into one wallet, newest first, and how to ask for a page of them."""
    wallet_address = shared.create_wallet("pages")
    token = token_for(shared, "create", wallet="pages")
    ids = [create(shared, token, walletAddress=wallet_address).json()["id"].rpartition("/")[2] for _ in range(25)]

    def page(query: str) -> Json:
        answer: Json = list_of(shared, token_for(shared, "list", wallet="pages"), query, "pages").json()
        return answer

    return ids[::-1], page


@pytest.mark.parametrize(
    ("query", "start", "end"),
    [
        ("", 0, 20),
        ("&first=10", 0, 10),
        ("&first=100", 0, 25),
        ("&cursor={9}", 10, 25),
        ("&first=5&cursor={9}", 10, 15),
        ("&first=15&cursor={9}", 10, 25),
        ("&last=5&cursor={9}", 4, 9),
        ("&last=9&cursor={9}", 0, 9),
        ("&last=100&cursor={9}", 0, 9),
        ("&first=1&cursor={23}", 24, 25),
    ],
)
def test_list_pages(shelf: tuple[list[str], Callable[[str], Json]], query: str, start: int, end: int) -> None:
    ids, page = shelf
    found = page(query.format(*ids))
    assert [item["id"].rpartition("/")[2] for item in found["result"]] == ids[start:end]
    assert found["pagination"] == {
        "startCursor": ids[start],
        "endCursor": ids[end - 1],
        "hasNextPage": end < len(ids),
        "hasPreviousPage": start > 0,
    }


@pytest.mark.parametrize(
    ("query", "has_next", "has_previous"), [("&cursor={24}", False, True), ("&last=5&cursor={0}", True, False)]
)
def test_list_pages_beyond_the_ends_are_empty(
    shelf: tuple[list[str], Callable[[str], Json]], query: str, has_next: bool, has_previous: bool
) -> None:
    ids, page = shelf
    assert page(query.format(*ids)) == {
        "pagination": {"hasNextPage": has_next, "hasPreviousPage": has_previous},
        "result": [],
    }


def test_list_pages_walk_through_all_in_both_directions(shelf: tuple[list[str], Callable[[str], Json]]) -> None:
    ids, page = shelf
    found = [page("&first=7")]
    while found[-1]["pagination"]["hasNextPage"]:
        found.append(page(f"&first=7&cursor={found[-1]['pagination']['endCursor']}"))
    assert [item["id"].rpartition("/")[2] for one in found for item in one["result"]] == ids
    for newer, older in pairwise(found):
        assert page(f"&last=7&cursor={older['pagination']['startCursor']}")["result"] == newer["result"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("&first=0", "first"),
        ("&first=101", "first"),
        ("&first=-1", "first"),
        ("&first=1.5", "first"),
        ("&first=%C2%B2", "first"),
        ("&first=", "first"),
        ("&first=1&first=2", "first"),
        ("&last=0&cursor={uuid}", "last"),
        ("&last=101&cursor={uuid}", "last"),
        ("&first=1&last=1&cursor={uuid}", "last"),
        ("&last=1", "cursor"),
        ("&cursor=", "cursor"),
        ("&cursor=none", "cursor"),
        ("&cursor={{{uuid}}}", "cursor"),
        ("&cursor=urn:uuid:{uuid}", "cursor"),
        ("&cursor={uuid}&cursor={uuid}", "cursor"),
        ("&wallet-address=twice", "wallet-address"),
    ],
)
def test_list_refuses_a_query_that_makes_no_sense(shared: Instance, refused: Refused, query: str, field: str) -> None:
    uuid = "01a1fc79-0911-70a0-a0fa-6dccf4c9252b"
    answer = list_of(shared, token_for(shared, "list", wallet=None), query.format(uuid=uuid))
    refused(answer, 400, "invalid_request", field=field)


@pytest.mark.parametrize("query", ["", "?wallet-address=", "?wallet-address=http%3A%2F%2Felsewhere.example%2Fbob"])
def test_list_refuses_wallet_addresses_that_are_not_here(shared: Instance, refused: Refused, query: str) -> None:
    answer = shared.client.get(f"/incoming-payments{query}", token_for(shared, "list", wallet=None))
    refused(answer, 400, "invalid_request", field="wallet-address")


def test_answers_are_json_with_unescaped_text(shared: Instance) -> None:
    answer = create(shared, token_for(shared, "create"), metadata={"name": "Ångström"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert json.loads(answer.content)["metadata"] == {"name": "Ångström"}
