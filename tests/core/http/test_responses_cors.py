import re

import httpx2
import pytest

from tests.instance import Instance

ORIGINS = ["https://shop.example", "moz-extension://2c127fa4-62c7-7e4f-90e5-472b45eecfdc", "null"]
API_PATHS = [
    "/",
    "/incoming-payments",
    "/incoming-payments/1/complete",
    "/continue/1",
    "/token/1",
    "/alice",
    "/nowhere",
]


def cors_headers(answer: httpx2.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


def words(header: str) -> set[str]:
    return {word.strip().lower() for word in header.split(",")}


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("path", [*API_PATHS, "/alice/jwks.json", "/alice/did.json"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_preflight_of_any_origin_is_granted(
    shared: Instance, anonymous: httpx2.Client, origin: str, path: str, method: str
) -> None:
    headers = {"origin": origin, "access-control-request-method": method, "access-control-request-headers": "signature"}
    answer = anonymous.options(shared.base_url + path, headers=headers)
    assert (answer.status_code, answer.content) == (204, b"")
    granted = cors_headers(answer)
    assert granted.pop("access-control-allow-origin") == "*"
    assert words(granted.pop("access-control-allow-methods")) == {"get", "head", "post", "delete", "options"}
    assert words(granted.pop("access-control-allow-headers")) >= {
        *("authorization", "content-type", "content-digest", "content-length", "signature", "signature-input"),
        *("accept", "idempotency-key"),
    }
    assert granted == {"access-control-max-age": "86400"}


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("path", [*API_PATHS, "/alice/jwks.json", "/healthz"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE", "PUT"])
def test_answers_and_refusals_are_open_to_scripts(
    shared: Instance, anonymous: httpx2.Client, origin: str, path: str, method: str
) -> None:
    answer = anonymous.request(method, shared.base_url + path, headers={"origin": origin})
    shown = cors_headers(answer)
    assert answer.headers.get_list("access-control-allow-origin") == ["*"]
    exposed = {
        *("www-authenticate", "location", "retry-after", "preference-applied"),
        *("idempotency-key", "x-request-id"),
    }
    assert words(shown.pop("access-control-expose-headers")) == exposed
    assert shown.keys() == {"access-control-allow-origin"}, "no credentials, and nothing else"


def test_request_without_origin_is_answered_as_ever(shared: Instance, anonymous: httpx2.Client) -> None:
    for path in API_PATHS[:-2]:
        for method in ("GET", "POST", "OPTIONS"):
            assert not cors_headers(anonymous.request(method, shared.base_url + path)), path
    assert not cors_headers(shared.client.get("/quotes/1", shared.client.grant({"type": "quote", "actions": ["read"]})))


@pytest.mark.parametrize(
    ("suffix", "caching"), [("", "public, max-age="), ("/jwks.json", "no-cache"), ("/did.json", "no-cache")]
)
def test_what_caches_share_is_open_whoever_asked_first(
    shared: Instance, anonymous: httpx2.Client, suffix: str, caching: str
) -> None:
    answer = anonymous.get(shared.wallet("alice") + suffix)
    assert answer.headers["cache-control"].startswith(caching)
    assert cors_headers(answer) == {"access-control-allow-origin": "*"}


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
@pytest.mark.parametrize("spelling", ["interact", "%69nteract"])
def test_consent_pages_are_closed_to_scripts(
    shared: Instance, anonymous: httpx2.Client, method: str, spelling: str
) -> None:
    access = {"type": "outgoing-payment", "actions": ["read"], "identifier": shared.wallet("alice")}
    page = shared.client.request_grant(access).json()["interact"]["redirect"]
    headers = {"origin": ORIGINS[0], "access-control-request-method": "POST"}
    for path in (page, f"{page}/", re.sub(r"/[^/]+$", "/unknown", page), f"{shared.base_url}/interact/1/2/3"):
        answer = anonymous.request(method, path.replace("/interact/", f"/{spelling}/"), headers=headers)
        assert not cors_headers(answer), path
        assert answer.status_code != 204
