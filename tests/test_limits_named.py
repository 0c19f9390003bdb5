"""Limits that one call meets: at the limit, one below it and one above it. The others have tests in their rooms."""

from collections.abc import Callable

import httpx2
import msgspec
import pytest
from starlette.requests import Request

from payres import limits
from payres.admin.steps import NewPassword
from payres.errors import DomainError
from payres.grants.gnap import AccessTokenRequest, ContinueRequest
from payres.grants.intervals import parse_interval
from payres.grants.sign_in import hash_password
from payres.http.responses import check_accept
from payres.routes.requests import idempotency_key, page_query
from payres.signatures.fields import content_digest, digest_problem, read_parameters, read_signatures
from payres.signatures.jwk import generate_private_key, jwk_from_public_bytes
from payres.signatures.reasons import SignatureError
from payres.testing.instance import Instance
from payres.urls import is_http_url, require_wallet_path
from payres.wire import decode, metadata_text

NAMED = {name: value for name, value in vars(limits).items() if name.isupper()}


def holds(taking: Callable[[int], object]) -> Callable[[int], bool]:
    """Whether something of a size is taken, by whether the function returns."""

    def is_taken(size: int) -> bool:
        try:
            taking(size)
        except (DomainError, SignatureError, ValueError):
            return False
        return True

    return is_taken


def password_member(size: int) -> object:
    return decode(msgspec.json.Decoder(NewPassword), msgspec.json.encode({"password": "a" * size}))


def bare_key(size: int) -> object:
    return idempotency_key([(b"idempotency-key", b"a" * size)])


def quoted_key(size: int) -> object:
    return idempotency_key([(b"idempotency-key", b'"' + b"\\\\" * size + b'"')])


def access_items(count: int) -> object:
    items = b",".join([b'{"type":"quote","actions":["read"]}'] * count)
    return decode(msgspec.json.Decoder(AccessTokenRequest), b'{"access":[%b]}' % items)


def interval(size: int) -> object:
    start, end = "R1/2026-01-01T00:00:00.", "Z/P1M"
    return parse_interval(start + "0" * (size - len(start) - len(end)) + end)


def nested(depth: int) -> object:
    return metadata_text(msgspec.Raw(b'{"a":' * depth + b"1" + b"}" * depth))


def nested_lists(depth: int) -> object:
    return metadata_text(msgspec.Raw(b'{"[{":' + b"[" * (depth - 1) + b'"]}"' + b"]" * (depth - 1) + b"}"))


def metadata_of_wide_characters(size: int) -> object:
    return metadata_text(msgspec.Raw(b'{ "a":"%b"}' % "\N{EURO SIGN}".encode().rjust(size - 9)))


def host(size: int) -> bool:
    return is_http_url(f"https://{'a' * size}/b") and is_http_url(f"https://{'é' * size}/b")


def accept(size: int) -> bool:
    """Whether an Accept that takes no JSON counts."""
    try:
        check_accept([(b"accept", b"text/html"), (b"accept", b"," * (size - len("text/html,")))])
    except DomainError:
        return True
    return False


def query(size: int) -> object:
    return page_query(Request({"type": "http", "query_string": b"first=1&".ljust(size, b"a"), "headers": []}))


def signatures(count: int) -> object:
    return read_signatures(", ".join(f'sig{number}=("@method")' for number in range(count)).encode(), b"sig0=:AAAA:")


def signature_header(size: int) -> object:
    start, end = b'sig1=("@method");x="', b'"'
    return read_signatures(start + b"a" * (size - len(start) - len(end)) + end, b"sig1=:AAAA:")


def digest_header(size: int) -> bool:
    digest = content_digest(b"body") + ', x="'
    return digest_problem(digest + "a" * (size - len(digest) - 1) + '"', b"body") is None


def nonce(size: int) -> object:
    return read_parameters(f';created=1;keyid="k";nonce="{"a" * size}"')


def keyid(size: int) -> object:
    return read_parameters(f';created=1;keyid="{"a" * size}"')


def kid(size: int) -> object:
    return jwk_from_public_bytes("k" * size, generate_private_key().public_key().public_bytes_raw())


def interact_ref(size: int) -> object:
    return decode(msgspec.json.Decoder(ContinueRequest), b'{"interact_ref":"%b"}' % (b"a" * size))


HELD: list[tuple[str, Callable[[int], bool]]] = [
    ("MAX_ACCEPT_BYTES", accept),
    ("MAX_ACCESS_ITEMS", holds(access_items)),
    ("MAX_HOST_LENGTH", host),
    ("MAX_IDEMPOTENCY_KEY_LENGTH", holds(bare_key)),
    ("MAX_IDEMPOTENCY_KEY_LENGTH", holds(quoted_key)),
    ("MAX_INTERVAL_LENGTH", holds(interval)),
    ("MAX_KEYID_LENGTH", holds(keyid)),
    ("MAX_KEYID_LENGTH", holds(kid)),
    ("MAX_METADATA_BYTES", holds(metadata_of_wide_characters)),
    ("MAX_METADATA_DEPTH", holds(nested)),
    ("MAX_METADATA_DEPTH", holds(nested_lists)),
    ("MAX_NONCE_LENGTH", holds(nonce)),
    ("MAX_NONCE_LENGTH", holds(interact_ref)),
    ("MAX_PASSWORD_LENGTH", holds(lambda size: hash_password("a" * size))),
    ("MAX_PASSWORD_LENGTH", holds(password_member)),
    ("MAX_QUERY_BYTES", holds(query)),
    ("MAX_SIGNATURES", holds(signatures)),
    ("MAX_SIGNATURE_HEADER_BYTES", holds(signature_header)),
    ("MAX_SIGNATURE_HEADER_BYTES", digest_header),
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
    most = limits.MAX_FORM_FIELDS
    assert [unread in field(count) for count in (most - 1, most, most + 1)] == [False, False, True]
