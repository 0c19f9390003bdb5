import httpx2
import pytest

from tests.conftest import Refused
from tests.core.http.test_error_answers import ALLOWED
from tests.instance import Instance

JSON = "application/json"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
TAKEN = [
    *("", ",", "*/*", "*/*;q=0.1", "application/*", JSON, "Application/JSON", "application/json; charset=utf-8"),
    *("application/json;q=0.001", "application/json;q=1.000", "application/json ; q=0.5"),
    *("application/json, text/plain, */*", "application/json;version=1;q=0, application/json"),
    *("*/*;q=0, application/json", "application/*;q=0, application/json;q=0.5, */*;q=0"),
    # Malformed: as if it were not there.
    *("json", "application", "application/", "/json", "*", "*/json", ";q=0", "undefined", "application/json;q=nought"),
    *("application/json;q=-1", "application/json;q=", "text/html, image/gif, *; q=.2, */*; q=.2"),
    *('application/json;profile="a,b;q=0"', "\x80\xff"),
]
REFUSED = [
    *("text/html", "text/*", "application/xml", "application/jsonx", "application/gnap+json"),
    *("application/spsp4+json", "application/json;q=0", "application/json;q=0.000"),
    *("application/json; charset=utf-8; q=0", "application/json;q=0, */*", "application/json;q=0, application/*"),
    *("application/*;q=0, */*", "*/*;q=0", "text/html, json", "text/html,application/xhtml+xml"),
]


@pytest.mark.parametrize("accept", REFUSED)
def test_accept_that_rules_json_out_is_refused(
    shared: Instance, anonymous: httpx2.Client, refused: Refused, accept: str
) -> None:
    refused(anonymous.get(f"{shared.base_url}/quotes/1", headers={"accept": accept}), 406, "not_acceptable")


@pytest.mark.parametrize("accept", TAKEN)
def test_wallet_address_is_json_for_whoever_can_read_it(
    shared: Instance, anonymous: httpx2.Client, accept: str
) -> None:
    answer = anonymous.get(shared.wallet("alice"), headers={b"accept": accept.encode("latin-1")})
    assert (answer.status_code, answer.headers["content-type"]) == (200, JSON)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_several_accept_lines_are_one(
    shared: Instance, anonymous: httpx2.Client, refused: Refused, method: str
) -> None:
    lines = [("accept", "text/html"), ("accept", "image/png")]
    refused(anonymous.request(method, f"{shared.base_url}/incoming-payments", headers=lines), 406, "not_acceptable")
    for more in (JSON, "*/*"):
        for order in ([*lines, ("accept", more)], [("accept", more), *lines]):
            answer = anonymous.request(method, f"{shared.base_url}/incoming-payments", headers=order)
            refused(answer, 401, "invalid_token")


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0, */*"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("OPTIONS", "/"),
        *((method, path) for path in ALLOWED if path != "/healthz" for method in ALLOWED[path] if method != "OPTIONS"),
    ],
)
def test_request_that_rules_json_out_is_refused_in_json(
    shared: Instance, anonymous: httpx2.Client, refused: Refused, method: str, path: str, accept: str
) -> None:
    answer = anonymous.request(method, shared.base_url + path, headers={"accept": accept})
    if (path, accept) == ("/alice", "text/html") and method in {"GET", "HEAD"}:  # which is a page too
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    elif method == "HEAD":
        assert (answer.status_code, answer.content) == (406, b"")
    else:
        refused(answer, 406, "not_acceptable")


@pytest.mark.parametrize(
    ("method", "paths", "status", "code"),
    [
        ("PUT", ("quotes", "alice", "alice/jwks.json", "alice/did.json"), 405, "method_not_allowed"),
        ("GET", ("nobody", "nobody/jwks.json", "nobody/did.json", "quotes/1/2", "account/x"), 404, "not_found"),
    ],
)
def test_wrong_method_and_unknown_address_are_reported_before_accept(
    shared: Instance,
    anonymous: httpx2.Client,
    refused: Refused,
    method: str,
    paths: tuple[str, ...],
    status: int,
    code: str,
) -> None:
    for path in paths:
        answer = anonymous.request(method, f"{shared.base_url}/{path}", headers={"accept": "text/html"})
        refused(answer, status, code)


@pytest.mark.parametrize(
    ("path", "accept"),
    [
        ("/alice/jwks.json", "application/jwk-set+json"),
        ("/alice/did.json", "application/did+json"),
        ("/alice/did.json", "application/json;q=0, application/did+json"),
        ("/alice/did.json", "application/did+ld+json;profile=x"),
        ("/alice/did.json", "application/ld+json"),
    ],
)
def test_documents_have_media_types_of_their_own(
    shared: Instance, anonymous: httpx2.Client, path: str, accept: str
) -> None:
    answer = anonymous.get(shared.base_url + path, headers={"accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (200, JSON)


def test_consent_pages_and_health_do_not_mind(shared: Instance, anonymous: httpx2.Client) -> None:
    access = {"type": "outgoing-payment", "actions": ["read"], "identifier": shared.wallet("alice")}
    page = shared.client.request_grant(access).json()["interact"]["redirect"]
    for accept in ("text/html", JSON, "image/png"):
        assert anonymous.get(page, headers={"accept": accept}).status_code == 200
        assert anonymous.get(f"{shared.base_url}/healthz", headers={"accept": accept}).status_code == 200


PREFER_HTML = [BROWSER, "text/html", "text/html, application/json;q=0.9", "text/html;q=0.5, */*;q=0.4"]
PREFER_JSON = ["", "*/*", JSON, f"{JSON}, text/html", "text/html, */*", "text/*", f"text/html;q=0.5, {JSON};q=0.6"]


@pytest.mark.parametrize("accept", PREFER_HTML)
def test_base_url_says_in_a_browser_what_it_is(shared: Instance, anonymous: httpx2.Client, accept: str) -> None:
    answer = anonymous.get(shared.base_url, headers={"accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "payres admin link" in answer.text
    answer = anonymous.head(f"{shared.base_url}/", headers={"accept": accept})
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("accept", PREFER_JSON)
def test_base_url_has_nothing_to_get_for_a_client(
    shared: Instance, anonymous: httpx2.Client, refused: Refused, accept: str
) -> None:
    answer = anonymous.get(shared.base_url, headers={"accept": accept})
    refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "OPTIONS, POST"
