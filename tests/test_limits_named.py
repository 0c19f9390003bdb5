"""Limits that one call meets: at the limit, one below it and one above it. The others have tests in their rooms."""

from collections.abc import Callable

import httpx2
import msgspec
import pytest
from starlette.requests import Request

from payres.accounts.passwords import hash_password
from payres.core.grants.spending_limits import parse_interval
from payres.core.http.requests import idempotency_key, page_query
from payres.core.http.responses import check_accept
from payres.core.protocol.errors import DomainError, SignatureError
from payres.core.protocol.gnap import AccessTokenRequest, ContinueRequest, Interact
from payres.core.protocol.urls import is_http_url, require_wallet_path
from payres.core.protocol.wire import decode, metadata_text
from payres.core.signatures.fields import content_digest, digest_problem, read_parameters, read_signatures
from payres.core.signatures.jwk import jwk_from_public_bytes
from payres.operator.declared.declarations import operation_of
from payres.operator.wallets import set_password
from tests.instance import Instance
from tests.promises import limits

NAMED = {name: getattr(module, name) for name, module in limits().items()}


def holds(taking: Callable[[int], object]) -> Callable[[int], bool]:
    """Whether something of a size is taken, by whether the function returns."""

    def is_taken(size: int) -> bool:
        try:
            taking(size)
        except (DomainError, SignatureError, ValueError):
            return False
        return True

    return is_taken


def decoded(kind: type[msgspec.Struct], **body: object) -> object:
    return decode(msgspec.json.Decoder(kind), msgspec.json.encode(body))


def padded(start: str, fill: str, end: str, size: int) -> str:
    """A text of this size, with as much in its middle as it takes."""
    return start + fill * (size - len(start) - len(end)) + end


def keyed(value: str) -> object:
    return idempotency_key([(b"idempotency-key", value.encode())])


def metadata(text: str) -> object:
    return metadata_text(msgspec.Raw(text.encode()))


def accept(size: int) -> bool:
    """Whether an Accept that takes no JSON counts."""
    return not holds(lambda size: check_accept([(b"accept", padded("text/html,", ",", "", size).encode())]))(size)


def query(size: int) -> object:
    return page_query(Request({"type": "http", "query_string": b"first=1&".ljust(size, b"a"), "headers": []}))


def signatures(count: int) -> object:
    return read_signatures(", ".join(f'sig{number}=("@method")' for number in range(count)).encode(), b"sig0=:AAAA:")


def digest_header(size: int) -> bool:
    return digest_problem(padded(content_digest(b"body") + ', x="', "a", '"', size), b"body") is None


READ = {"type": "quote", "actions": ["read"]}
HELD: list[tuple[str, Callable[[int], bool]]] = [
    ("MAX_ACCEPT_BYTES", accept),
    ("MAX_ACCESS_ITEMS", holds(lambda count: decoded(AccessTokenRequest, access=[READ] * count))),
    ("MAX_HOST_LENGTH", lambda size: all(is_http_url(f"https://{letter * size}/b") for letter in "aé")),
    ("MAX_IDEMPOTENCY_KEY_LENGTH", holds(lambda size: keyed("a" * size))),
    ("MAX_IDEMPOTENCY_KEY_LENGTH", holds(lambda size: keyed('"' + r"\\" * size + '"'))),
    ("MAX_INTERVAL_LENGTH", holds(lambda size: parse_interval(padded("R1/2026-01-01T00:00:00.", "0", "Z/P1M", size)))),
    ("MAX_KEYID_LENGTH", holds(lambda size: read_parameters(f';created=1;keyid="{"a" * size}"'))),
    ("MAX_KEYID_LENGTH", holds(lambda size: jwk_from_public_bytes("k" * size, bytes(32)))),
    ("MAX_METADATA_BYTES", holds(lambda size: metadata('{ "a":"' + "\N{EURO SIGN}".rjust(size - 11) + '"}'))),
    ("MAX_METADATA_DEPTH", holds(lambda depth: metadata('{"a":' * depth + "1" + "}" * depth))),
    (
        "MAX_METADATA_DEPTH",
        holds(lambda depth: metadata('{"[{":' + "[" * (depth - 1) + '"]}"' + "]" * (depth - 1) + "}")),
    ),
    ("MAX_NONCE_LENGTH", holds(lambda size: read_parameters(f';created=1;keyid="k";nonce="{"a" * size}"'))),
    ("MAX_NONCE_LENGTH", holds(lambda size: decoded(ContinueRequest, interact_ref="a" * size))),
    ("MAX_PASSWORD_LENGTH", holds(lambda size: hash_password("a" * size))),
    ("MAX_PASSWORD_LENGTH", holds(lambda size: operation_of(set_password).read({"password": "a" * size}))),
    ("MAX_QUERY_BYTES", holds(query)),
    ("MAX_SIGNATURES", holds(signatures)),
    (
        "MAX_SIGNATURE_HEADER_BYTES",
        holds(lambda size: read_signatures(padded('sig1=("@method");x="', "a", '"', size).encode(), b"sig1=:AAAA:")),
    ),
    ("MAX_SIGNATURE_HEADER_BYTES", digest_header),
    ("MAX_START_MODES", holds(lambda count: decoded(Interact, start=["redirect"] * count))),
    ("MAX_START_MODES", holds(lambda count: decoded(Interact, start=[{f"m{n}": 1 for n in range(count)}]))),
    ("MAX_START_MODE_LENGTH", holds(lambda size: decoded(Interact, start=["a" * size]))),
    ("MAX_URL_LENGTH", lambda size: is_http_url("https://a/" + "b" * (size - 10))),
    ("MAX_WALLET_PATH_LENGTH", holds(lambda size: require_wallet_path("a" * size))),
]


@pytest.mark.parametrize(("name", "is_taken"), HELD)
def test_limit_is_taken_and_what_is_above_is_not(name: str, is_taken: Callable[[int], bool]) -> None:
    most = NAMED[name]
    assert [is_taken(size) for size in (most - 1, most, most + 1)] == [True, True, False]


@pytest.mark.parametrize(
    ("name", "path", "media_type"),
    [
        ("DEFAULT_BODY_BYTES", "/quotes", "application/json"),
        ("MAX_FORM_BYTES", "/interact/none/none", "application/x-www-form-urlencoded"),
    ],
)
def test_body_up_to_the_limit_is_read(
    shared: Instance, anonymous: httpx2.Client, name: str, path: str, media_type: str
) -> None:
    def status(size: int) -> int:
        headers = {"content-type": media_type}
        return anonymous.post(shared.base_url + path, content=b"a=" + b"b" * (size - 2), headers=headers).status_code

    below, at, above = (status(NAMED[name] + more) for more in (-1, 0, 1))
    assert below == at != 413
    assert above == 413


def test_form_has_so_many_fields(shared: Instance, anonymous: httpx2.Client) -> None:
    def field(count: int) -> str:
        form = {f"f{number}": "" for number in range(count)}
        return anonymous.post(f"{shared.base_url}/interact/none/none", data=form).text

    unread = "cannot be read"
    most = NAMED["MAX_FORM_FIELDS"]
    assert [unread in field(count) for count in (most - 1, most, most + 1)] == [False, False, True]
