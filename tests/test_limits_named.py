"""Each named limit: documented, and held at the limit, one below it and one above it."""

import ast
from collections.abc import Callable

import httpx2
import msgspec
import pytest
from starlette.requests import Request

from payres import limits
from payres.admin.requests import NewPassword
from payres.errors import DomainError
from payres.grants.gnap import AccessTokenRequest, ContinueRequest
from payres.grants.intervals import parse_interval
from payres.grants.sign_in import hash_password
from payres.http.accept import check_accept
from payres.routes.requests import idempotency_key, page_query
from payres.settings import Settings
from payres.signatures.fields import content_digest, digest_problem, read_parameters, read_signatures
from payres.signatures.jwk import generate_private_key, jwk_from_public_bytes
from payres.signatures.reasons import SignatureError
from payres.testing.instance import Instance
from payres.urls import is_http_url, require_wallet_path
from payres.wire import decode, metadata_text
from tests.helpers import ROOT

NAMED = {name: value for name, value in vars(limits).items() if name.isupper()}

# The tests of limits that take more than a call, by file.
ELSEWHERE = {
    "tests/payments/test_incoming.py": {"OVERPAY_TOLERANCE": "test_only_packets_may_exceed_what_is_wanted"},
    "tests/admin/test_exports.py": {
        "MAX_EXPORTS": "test_exports_at_a_time_are_limited",
        "MAX_EXPORTS_OF_CALLER": "test_exports_at_a_time_are_limited",
        "EXPORT_SECONDS": "test_export_that_takes_too_long_is_cut_short",
    },
    "tests/grants/test_holders.py": {"MAX_TOKEN_HOLDERS": "test_oldest_of_too_many_is_read_again"},
    "tests/federation/test_connection.py": {"MAX_FETCHED_BYTES": "test_get_json_takes_a_body_of_exactly_the_bound"},
    "tests/federation/test_wallet_addresses.py": {"MAX_JWKS_KEYS": "test_fetch_keys_keeps_32_keys"},
    "tests/federation/test_ip_addresses.py": {
        "MAX_LOOKUPS": "test_lookups_are_limited",
        "MAX_LOOKUPS_OF_REQUESTS": "test_lookups_are_limited",
        "MAX_LOOKUPS_OF_CLIENT": "test_lookups_are_limited",
        "MAX_LOOKUPS_OF_KEY": "test_lookups_are_limited",
        "SLOW_LOOKUP_SECONDS": "test_lookup_that_hangs_keeps_no_further_request_waiting",
        "FAILED_LOOKUP_SECONDS": "test_name_that_failed_is_not_looked_up_for_requests_a_while",
        "MAX_FAILED_NAMES": "test_names_that_failed_are_remembered_up_to_a_bound",
    },
    "tests/federation/test_http.py": {
        "MAX_EXCHANGES": "test_payments_have_exchanges_of_their_own",
        "MAX_EXCHANGES_OF_CLIENT": "test_exchanges_are_limited_for_whoever_asks",
        "MAX_EXCHANGES_OF_KEY": "test_exchanges_are_limited_for_whoever_asks",
        "FAILED_SERVER_SECONDS": "test_server_that_cannot_be_reached_is_not_asked_again_for_requests_a_while",
    },
    "tests/routes/test_authorize.py": {
        "KEY_REFETCH_RATE": "test_keys_that_are_still_good_are_fetched_again_a_few_times_only",
    },
    "tests/attacks/test_reflected_guessing.py": {"FAILED_READS_PART": "test_reflected_guesses_of_one_client_are_few"},
    "tests/grants/test_sign_in.py": {
        "MAX_WRONG_PASSWORDS": "test_check_password_refuses_the_sixth_guess_and_then_the_right_one_too",
        "MAX_WRONG_PASSWORDS_PER_WALLET": "test_guesses_from_everywhere_are_limited_for_a_wallet",
        "MAX_WRONG_PASSWORDS_PER_ADDRESS": "test_guesses_for_all_wallets_are_limited_for_an_address",
        "PASSWORDS_AT_ONCE": "test_check_password_leaves_the_loop_free_and_hashes_a_few_at_once",
        "PASSWORDS_WAITING": "test_sign_ins_beyond_the_queue_are_refused_and_not_counted",
    },
    "tests/routes/test_consent.py": {
        "KNOWN_BROWSER_DAYS": "test_browser_is_known_for_a_year_from_its_last_sign_in",
        "MAX_KNOWN_BROWSERS": "test_wallet_knows_so_many_browsers",
    },
    "tests/interledger/test_forwarding.py": {
        "MAX_PASSED_ON": "test_packets_passed_on_to_one_peer_are_limited",
        "MAX_PASSED_ON_OF_PEER": "test_peer_whose_packets_are_held_leaves_others_places_on_the_next_link",
    },
    "tests/interledger/test_reconciliation.py": {
        "MAX_UNREPEATED": "test_packets_in_flight_to_a_peer_that_does_not_repeat_answers_are_few",
        "MAX_UNREPEATED_OF_WALLET": "test_packets_in_flight_to_a_peer_that_does_not_repeat_answers_are_few",
    },
    "tests/interledger/test_outbound.py": {
        "DRAIN_SECONDS": "test_stopping_waits_for_answers_for_a_while_only",
    },
    "tests/interledger/test_connector.py": {
        "MAX_PACKETS_IN_FLIGHT": "test_packets_in_flight_are_limited_for_each_peer",
        "DEFAULT_RATE_PER_PEER": "test_packets_a_second_are_limited_for_each_peer",
    },
    "tests/http/test_admission.py": {
        "MAX_REQUESTS_PER_ADDRESS": "test_requests_of_an_address_under_way_are_limited",
    },
    "tests/http/test_connections.py": {
        "MAX_BUFFERED_BYTES": "test_buffers_of_all_are_limited_and_the_oldest_are_cut",
        "MAX_CONNECTIONS": "test_connections_are_limited",
        "MAX_CONNECTIONS_PER_ADDRESS": "test_connections_of_one_address_are_limited",
        "SPARE_FILES": "test_connections_are_limited",
    },
    "tests/routes/test_waiting.py": {
        "MAX_WAIT_SECONDS": "test_preference_is_read_as_rfc_7240_says",
        "MAX_WAITING_REQUESTS": "test_one_too_many_is_answered_at_once",
        "MAX_WAITING_REQUESTS_OF_CLIENT": "test_one_too_many_is_answered_at_once",
    },
    "tests/events/test_webhooks.py": {
        "MAX_WEBHOOKS": "test_webhooks_are_limited",
        "MAX_DELIVERIES_OF_WEBHOOK": "test_slow_endpoint_delays_no_other",
        "DELIVERY_SECONDS": "test_endpoint_that_does_not_answer_is_given_up",
        "MAX_RETRY_AFTER_SECONDS": "test_retry_after_is_read_and_bounded",
        "ROTATION_HOURS": "test_two_secrets_sign_for_a_day_after_a_rotation",
    },
    "tests/routes/test_readiness.py": {"MIN_FREE_BYTES": "test_readiness_wants_room_on_the_disk"},
    "tests/http/test_protocol.py": {"MAX_HEADER_BYTES": "test_longer_header_section_is_refused"},
    "tests/http/test_timing.py": {
        "REQUEST_SECONDS": "test_request_that_does_not_end_is_refused",
        "UNREAD_SECONDS": "test_client_that_reads_no_answers_is_cut_off",
    },
    "tests/routes/test_ilp.py": {
        "MAX_PACKET_BODY_BYTES": "test_longest_packet_is_taken_and_a_longer_body_is_not",
    },
    "tests/http/test_rate_limits.py": {
        "DEFAULT_RATE_PER_CLIENT": "test_client_is_counted_by_itself_after_it_has_proven_itself",
        "DEFAULT_RATE_PER_ADDRESS": "test_address_may_ask_so_often_and_again_later",
        "DEFAULT_RATE_UNAUTHENTICATED": "test_address_that_guesses_is_refused_whatever_it_asks",
    },
    "tests/grants/test_grant_rules.py": {
        "APPROVAL_SECONDS": "test_approval_lapses_when_it_is_not_continued_within_an_hour",
        "MAX_PRESENTED_KIDS": "test_client_that_is_a_key_keeps_its_last_names",
    },
    "tests/store/test_database.py": {"MAX_UNITS_PER_COMMIT": "test_no_commit_holds_more_units_than_allowed"},
    "tests/store/test_fail_stop.py": {"MAX_WAITING_UNITS": "test_units_that_wait_are_limited"},
    "tests/test_rate_limiter.py": {
        "BURST_SECONDS": "test_take_gives_a_burst_and_then_the_rate",
        "MAX_COUNTED": "test_least_recent_of_too_many_keys_is_forgotten",
    },
}
# What is no bound that a request can be below or above.
PLAIN = {"BACKLOG", "DEFAULT_PAGE", "GRACE_SECONDS", "KEEP_ALIVE_SECONDS"}


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


def metadata(size: int) -> object:
    return metadata_text(msgspec.Raw(b'{"a":"%b"}' % b"a".ljust(size - 8)))


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


def page(size: int) -> object:
    return page_query(Request({"type": "http", "query_string": f"first={size}".encode(), "headers": []}))


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
    ("MAX_METADATA_BYTES", holds(metadata)),
    ("MAX_METADATA_BYTES", holds(metadata_of_wide_characters)),
    ("MAX_METADATA_DEPTH", holds(nested)),
    ("MAX_METADATA_DEPTH", holds(nested_lists)),
    ("MAX_NONCE_LENGTH", holds(nonce)),
    ("MAX_NONCE_LENGTH", holds(interact_ref)),
    ("MAX_PAGE", holds(page)),
    ("MAX_PASSWORD_LENGTH", holds(lambda size: hash_password("a" * size))),
    ("MAX_PASSWORD_LENGTH", holds(password_member)),
    ("MAX_QUERY_BYTES", holds(query)),
    ("MAX_SIGNATURES", holds(signatures)),
    ("MAX_SIGNATURE_HEADER_BYTES", holds(signature_header)),
    ("MAX_SIGNATURE_HEADER_BYTES", digest_header),
    ("MAX_URL_LENGTH", lambda size: is_http_url("https://a/" + "b" * (size - 10))),
    ("MAX_WALLET_PATH_LENGTH", holds(lambda size: require_wallet_path("a" * size))),
]


@pytest.mark.parametrize("take", [lambda size: hash_password("a" * size), password_member])
def test_password_has_so_many_characters(take: Callable[[int], object]) -> None:
    is_taken, least = holds(take), limits.MIN_PASSWORD_LENGTH
    assert [is_taken(size) for size in (0, least - 1, least)] == [False, False, True]


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


def test_page_without_a_number_has_the_default() -> None:
    request = Request({"type": "http", "query_string": b"", "headers": []})
    assert page_query(request).count == limits.DEFAULT_PAGE


def test_settings_begin_with_the_named_defaults() -> None:
    settings = Settings()
    assert (settings.max_body_bytes, settings.rate_limit_per_client) == (
        limits.DEFAULT_BODY_BYTES,
        limits.DEFAULT_RATE_PER_CLIENT,
    )
    assert (settings.rate_limit_per_address, settings.rate_limit_unauthenticated, settings.rate_limit_per_peer) == (
        limits.DEFAULT_RATE_PER_ADDRESS,
        limits.DEFAULT_RATE_UNAUTHENTICATED,
        limits.DEFAULT_RATE_PER_PEER,
    )


def test_every_limit_has_a_test() -> None:
    here = {name for name, _ in HELD}
    here |= {"DEFAULT_BODY_BYTES", "MAX_FORM_BYTES", "MAX_FORM_FIELDS", "MIN_PASSWORD_LENGTH"}
    elsewhere = {name for tests in ELSEWHERE.values() for name in tests}
    assert here | elsewhere | PLAIN == NAMED.keys()
    for path, tests in ELSEWHERE.items():
        names = {getattr(node, "name", "") for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body}
        assert set(tests.values()) <= names, path


def test_every_limit_is_explained_where_it_stands() -> None:
    lines = (ROOT / "payres/limits.py").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if ": Final = " in line:
            assert "  # " in line or lines[number - 1].startswith("# "), line
