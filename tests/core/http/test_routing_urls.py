"""URLs over HTTP: what is one address and what is another, and the methods that need no body."""

import json
from collections.abc import Callable, Iterator
from urllib.parse import quote as percent_encoded
from urllib.parse import urlsplit

import httpx2
import pytest

from payres.core.protocol.urls import RESERVED_SEGMENTS
from tests.conftest import Refused
from tests.helpers import usd
from tests.instance import Instance
from tests.raw_requests import ask, signed
from tests.signing_client import Client

# Members of what these addresses answer with; all others answer with an error.
OWN_ANSWERS = {"healthz": "status", "readyz": "status", "openapi.json": "openapi"}


def same(url: str) -> Iterator[str]:
    """Other spellings of a URL of an instance, all with the same meaning."""
    scheme, host, path = urlsplit(url)[:3]
    yield url
    yield f"{url}/"
    yield f"{url}//"
    yield f"{scheme}://{host}{path[:-1]}%{ord(path[-1]):X}"
    yield f"{scheme}://{host}{path[:-1]}%{ord(path[-1]):x}/"
    yield f"{url}?first=1"
    yield f"{url}/?first=1#fragment"
    yield url.replace("http:", "HTTP:", 1)
    yield f"{url}#fragment"
    for other in ("127.0.0.1.", "127.1", "2130706433", "0x7F.0.0.1", "localhost", "LocalHost.", "[::1]", "[0:0::1]"):
        yield url.replace("127.0.0.1", other, 1)


def different(url: str) -> Iterator[str]:
    """URLs that resemble one of an instance, and mean another."""
    scheme, host, path = urlsplit(url)[:3]
    yield f"https://{host}{path}"
    yield f"{scheme}://{host}1{path}"
    yield f"{scheme}://{host.partition(':')[0]}{path}"
    yield f"{scheme}://user@{host}{path}"
    yield f"{scheme}://user:secret@{host}{path}"
    yield f"{scheme}://{host}/x/..{path}"
    yield f"{scheme}://{host}/.{path}"
    yield f"{scheme}://{host}/%2e{path}"
    yield f"{scheme}://{host}/{path}"
    yield f"{scheme}://{host}/%2F{path[1:]}"
    yield f"{scheme}://{host}{path}%20"
    yield f"{scheme}://{host}{path}%"
    yield f"{scheme}://evil.example/{url}"
    yield f"{host}{path}"
    yield path


def test_wallet_address_in_a_body_has_several_spellings(shared: Instance) -> None:
    client = shared.client
    for spelling in [*same(shared.wallet("alice")), shared.wallet("ALICE"), shared.wallet("alice").upper()]:
        access = {"type": "incoming-payment", "actions": ["create", "list"], "identifier": spelling}
        token = client.grant(access)
        created = client.post("/incoming-payments", {"walletAddress": shared.wallet("alice")}, token)
        assert created.status_code == 201, spelling
        assert created.json()["walletAddress"] == shared.wallet("alice")
        named = client.post("/incoming-payments", {"walletAddress": spelling}, token)
        assert named.json()["walletAddress"] == shared.wallet("alice"), spelling
        listed = client.get(f"/incoming-payments?wallet-address={percent_encoded(spelling, '')}", token)
        assert listed.status_code == 200, spelling


def test_what_resembles_a_wallet_address_is_none(shared: Instance, refused: Refused) -> None:
    client = shared.client
    bound = client.grant(
        {"type": "incoming-payment", "actions": ["create", "list"], "identifier": shared.wallet("alice")}
    )
    free = client.grant({"type": "incoming-payment", "actions": ["create", "list"]})
    for spelling in different(shared.wallet("alice")):
        query = f"/incoming-payments?wallet-address={percent_encoded(spelling, '')}"
        refused(client.post("/incoming-payments", {"walletAddress": spelling}, bound), 403, "insufficient_access")
        refused(client.post("/incoming-payments", {"walletAddress": spelling}, free), 400, "invalid_request")
        refused(client.get(query, bound), 403, "insufficient_access")
        refused(client.get(query, free), 400, "invalid_request", field="wallet-address")
        access = {"type": "quote", "actions": ["create"], "identifier": spelling}
        refused(client.request_grant(access), 400, "invalid_request")


def test_receiver_and_quote_have_several_spellings(shared: Instance) -> None:
    client, payer = shared.client, shared.create_wallet("spelt", deposit="100.00")
    receiver = client.create_incoming_payment(shared.wallet("bob"))["id"]
    limits = {"receiver": receiver, "debitAmount": usd(5000)}
    access = {"type": "outgoing-payment", "actions": ["create"], "identifier": payer, "limits": limits}
    token = client.grant(access)
    for spelling in same(receiver):
        granted = client.obtain_grant(access | {"limits": limits | {"receiver": spelling}})["access_token"]
        assert granted["access"] == [access], spelling
        body = {"walletAddress": payer, "incomingPayment": spelling, "debitAmount": usd(100)}
        assert client.post("/outgoing-payments", body, granted["value"]).json()["receiver"] == receiver, spelling
        quote = client.create_quote(payer, spelling, debitAmount=usd(100))
        assert quote["receiver"] == receiver, spelling
        for again in list(same(quote["id"]))[-2:]:
            answer = client.post("/outgoing-payments", {"walletAddress": payer, "quoteId": again}, token)
            assert answer.status_code in {201, 409}, spelling
            assert answer.status_code == 201 or answer.json()["error"]["code"] == "wrong_state"
    quote_id = client.create_quote(payer, receiver, debitAmount=usd(100))["id"]
    for position, spelling in enumerate(same(quote_id)):
        answer = client.post("/outgoing-payments", {"walletAddress": payer, "quoteId": spelling}, token)
        assert answer.status_code == (409 if position else 201), spelling
        assert position or answer.json()["quoteId"] == quote_id


def test_what_resembles_a_receiver_or_quote_is_none(shared: Instance, refused: Refused) -> None:
    client, payer = shared.client, shared.wallet("alice")
    receiver = client.create_incoming_payment(shared.wallet("bob"))["id"]
    quote = client.create_quote(payer, receiver, debitAmount=usd(100))
    quoting = client.grant({"type": "quote", "actions": ["create"]})
    paying = client.grant({"type": "outgoing-payment", "actions": ["create"], "identifier": payer})
    for spelling in different(receiver):
        body = {"walletAddress": payer, "receiver": spelling, "method": "ilp", "debitAmount": usd(100)}
        refused(client.post("/quotes", body, quoting), 400, "invalid_receiver")
    for spelling in different(quote["id"]):
        answer = client.post("/outgoing-payments", {"walletAddress": payer, "quoteId": spelling}, paying)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_quote"), spelling


def test_client_has_one_identity_however_its_wallet_address_is_spelt(shared: Instance) -> None:
    client = shared.client
    token = client.grant({"type": "quote", "actions": ["create"]})
    receiver = client.create_incoming_payment(shared.wallet("bob"))["id"]
    body = {"walletAddress": shared.wallet("alice"), "receiver": receiver, "method": "ilp", "debitAmount": usd(100)}
    quote = client.post("/quotes", body, token).json()["id"]
    for spelling in [*same(client.wallet_address), client.wallet_address.replace("shop", "SHOP")]:
        asked = {"client": spelling, "interact": None}
        reading = client.request_grant({"type": "quote", "actions": ["read"]}, **asked)
        assert reading.status_code == 200, spelling
        assert client.get(quote, reading.json()["access_token"]["value"]).status_code == 200, spelling


def test_user_information_makes_no_client(shared: Instance, refused: Refused) -> None:
    spelling = shared.client.wallet_address.replace("://", "://user@")
    refused(shared.client.request_grant({"type": "quote", "actions": ["read"]}, client=spelling), 400, "invalid_client")


# What reaches the server besides the path


@pytest.mark.parametrize(("sent", "said"), [("?", "?"), ("?", ""), ("", "?"), ("", "")])
def test_bare_question_mark_may_be_signed(shared: Instance, sent: str, said: str) -> None:
    """A client that puts it into the target signs it; what comes to the application has it no more."""
    payment = shared.client.create_incoming_payment(shared.wallet("bob"))
    token = shared.client.grant({"type": "incoming-payment", "actions": ["read"]})
    headers = signed(shared, "GET", payment["id"] + said, token)
    path = urlsplit(payment["id"]).path
    answer = ask(shared, "GET", path + sent, headers)
    assert (answer.status, json.loads(answer.body)) == (200, payment)
    assert ask(shared, "GET", f"{path}?a", headers).status == 401


@pytest.mark.parametrize(
    "target",
    [
        *("/bob/../alice", "/./alice", "//alice", "/alice%00", "/al%ZZice", "*", "/%2e/alice"),
        *("/alice%2F", "/alice%2f/jwks.json", "/alice//", "/alice//jwks.json", "/alice//did.json", "/healthz%2F"),
        *("/incoming-payments%2Fx", "/quotes%2fx", "/interact%2Fx/y", "/alice%2Fjwks.json"),
    ],
)
def test_target_is_not_resolved_by_the_server(shared: Instance, target: str) -> None:
    answer = ask(shared, "GET", target)
    assert (answer.status, answer.headers["content-type"]) == (404, "application/json")
    assert b"not_found" in answer.body


# HEAD and OPTIONS


@pytest.fixture(scope="module")
def readable(shared: Instance) -> list[tuple[str, str | None]]:
    """Every address that takes GET, with the token it needs."""
    client, payer = shared.client, shared.create_wallet("headed", deposit="5.00")
    receiver = client.create_incoming_payment(shared.wallet("bob"))["id"]
    quote = client.create_quote(payer, receiver, debitAmount=usd(100))["id"]
    payment = client.create_outgoing_payment(payer, quote)["id"]
    spending = {"type": "outgoing-payment", "actions": ["create", "read", "list"], "identifier": payer}
    incoming = client.grant({"type": "incoming-payment", "actions": ["read", "list"]})
    outgoing = client.grant(spending)
    asked = client.request_grant(spending).json()
    return [
        ("/alice", None),
        ("/alice/jwks.json", None),
        ("/alice/did.json", None),
        ("/healthz", None),
        (asked["interact"]["redirect"], None),
        (receiver, None),
        (receiver, incoming),
        (f"/incoming-payments?wallet-address={shared.wallet('bob')}", incoming),
        (quote, client.grant({"type": "quote", "actions": ["read"]})),
        (payment, outgoing),
        (f"/outgoing-payments?wallet-address={payer}", outgoing),
        ("/outgoing-payment-grant", outgoing),
    ]


def common(answer: httpx2.Response) -> dict[str, str]:
    """What is not of this one answer alone."""
    return {name: value for name, value in answer.headers.items() if name not in ("date", "x-request-id")}


def test_head_is_get_without_a_body(
    shared: Instance, anonymous: httpx2.Client, readable: list[tuple[str, str | None]]
) -> None:
    for url, token in readable:
        url = url if "://" in url else shared.base_url + url
        ask = anonymous.request if token is None else client_request(shared.client, token)
        got, head = ask("GET", url), ask("HEAD", url)
        assert (got.status_code, head.status_code) == (200, 200), url
        assert common(head) == common(got), url
        assert int(head.headers["content-length"]) == len(got.content) > 0
        assert head.content == b""


def client_request(client: Client, token: str) -> Callable[[str, str], httpx2.Response]:
    return lambda method, url: client.request(method, url, token=token)


@pytest.mark.parametrize("path", ["/nowhere", "/quotes/1", "/quotes", "/", "/incoming-payments/1"])
def test_head_of_what_is_refused_has_no_body_either(shared: Instance, anonymous: httpx2.Client, path: str) -> None:
    got, head = anonymous.get(shared.base_url + path), anonymous.head(shared.base_url + path)
    assert got.status_code == head.status_code >= 400
    assert common(head) == common(got)
    assert head.content == b""


def test_head_is_not_signed_by_a_get(shared: Instance, refused: Refused) -> None:
    token = shared.client.grant({"type": "quote", "actions": ["read"]})
    headers = signed(shared, "GET", f"{shared.base_url}/quotes/1", token)
    assert [ask(shared, method, "/quotes/1", headers).status for method in ("GET", "HEAD")] == [404, 401]


def test_options_of_the_grant_endpoint_is_its_discovery(shared: Instance, anonymous: httpx2.Client) -> None:
    answer = anonymous.options(f"{shared.base_url}/")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.headers["allow"] == "OPTIONS, POST"
    assert answer.json() == {
        "grant_request_endpoint": f"{shared.base_url}/",
        "interaction_start_modes_supported": ["redirect"],
        "interaction_finish_methods_supported": ["redirect"],
        "key_proofs_supported": ["httpsig"],
        "sub_id_formats_supported": ["uri"],
        "key_rotation_supported": False,
    }
    wallet = anonymous.get(shared.wallet("alice")).json()
    assert answer.json()["grant_request_endpoint"] == wallet["authServer"]


def test_wallet_without_a_path_is_at_its_well_known_address(
    payres: Instance, anonymous: httpx2.Client, refused: Refused
) -> None:
    address = f"{payres.base_url}/.well-known/pay"
    shown = anonymous.get(address).json()
    assert (shown["id"], shown["publicName"], shown["assetCode"]) == (address, "127.0.0.1", "USD")
    spsp = {"accept": "application/spsp4+json"}
    refused(anonymous.get(address, headers=spsp), 404, "not_found")
    assert payres.create_wallet(".well-known/pay", name="Pay") == address
    shown = anonymous.get(address).json()
    assert (shown["id"], shown["publicName"]) == (address, "Pay")
    for suffix in ("/jwks.json", "/did.json", "/"):
        assert anonymous.get(address + suffix).status_code == 200
    for path in ("/.well-known", "/.well-known/did.json", "/.well-known/pay/x", "/.well-known/pay/x/jwks.json"):
        refused(anonymous.get(payres.base_url + path), 404, "not_found")


@pytest.mark.parametrize("segment", sorted(RESERVED_SEGMENTS))
def test_reserved_path_is_never_taken_for_a_wallet(shared: Instance, anonymous: httpx2.Client, segment: str) -> None:
    for path in (segment, f"{segment}/", f"{segment}/jwks.json", f"{segment}/did.json", f"{segment}/x/y/z"):
        answer = anonymous.get(f"{shared.base_url}/{path}")
        if answer.headers["content-type"].startswith(("text/", "image/")):  # pages, a text and the icon
            assert "authServer" not in answer.text
            continue
        assert OWN_ANSWERS.get(path.rstrip("/"), "error") in answer.json(), path
        assert not answer.has_redirect_location
