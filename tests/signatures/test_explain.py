"""Explanations of captured requests: broken ones, each with the cause that must be named, and right ones."""

import json
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256, sha512
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from payres.signatures.base import Message, signature_base
from payres.signatures.capture import read_capture
from payres.signatures.digest import content_digest
from payres.signatures.explain import MISSING_TOKEN, Explanation, KnownKey, Verdict
from payres.signatures.jwk import JWK, jwk_from_public_bytes
from payres.signatures.parameters import Policy
from payres.signatures.reasons import Reason
from payres.signatures.verify import Verified
from tests.helpers import verify_message

BASE = "https://pay.example"
CREATED = 1_763_703_600  # 2025-11-21T05:40:00Z
NOW = (CREATED + 12) * 1_000_000
POLICY = Policy()
BODY = b'{"walletAddress":"https://pay.example/alice","note":"\xc3\xa9"}'
COMPONENTS = ("@method", "@target-uri", "authorization", "content-digest", "content-length", "content-type")
PARAMETERS = f';keyid="app";created={CREATED}'

Hash = Callable[[bytes], bytes]


def private_key(seed: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)


def jwk(kid: str, seed: int) -> JWK:
    return jwk_from_public_bytes(kid, private_key(seed).public_key().public_bytes_raw())


APP, OTHER, FORMER = (
    KnownKey(jwk("app", 1)),
    KnownKey(jwk("other", 2)),
    KnownKey(jwk("old", 3), "was revoked on Monday"),
)
KEYS = (APP, OTHER, FORMER)


def request(
    *,
    method: str = "POST",
    target: str = "/incoming-payments",
    body: bytes = BODY,
    sent: dict[str, str | None] | None = None,
    components: Sequence[str] = COMPONENTS,
    parameters: str = PARAMETERS,
    listed: str | None = None,
    seed: int = 1,
    signs: dict[str, Any] | None = None,
    spelling: Hash = bytes,
    ending: str = "\r\n",
    form: Callable[[str, str], tuple[str, str]] = lambda text, signature: (f"sig1={text}", f"sig1=:{signature}:"),
) -> bytes:
    """A raw request. `sent` replaces headers on the wire, and `signs` what the signer believed: method, uri, names,
    last (the last line of the base) or a header."""
    right = {
        "authorization": "GNAP token",
        "content-digest": content_digest(body),
        "content-length": str(len(body)),
        "content-type": "application/json",
    }
    on_wire = {name: value for name, value in (right | (sent or {})).items() if value is not None}
    believed = {"method": method, "uri": BASE + target, "names": components} | on_wire | (signs or {})
    text = (listed or "(" + " ".join(f'"{name}"' for name in components) + ")") + parameters
    lines = [(name.encode(), str(value).encode()) for name, value in believed.items()]
    message = Message(believed["method"], believed["uri"], lines)
    base = signature_base(message, believed["names"], believed.get("last", text))
    signature = b64encode(private_key(seed).sign(spelling(base))).decode()
    signature_input, signature_value = form(text, signature)
    head = [f"{method} {target} HTTP/1.1", "Host: pay.example"]
    head += [f"{name.title()}: {value}" for name, value in on_wire.items()]
    head += [f"Signature-Input: {signature_input}", f"Signature: {signature_value}", "", ""]
    return ending.join(head).encode() + body


def explained(raw: bytes, keys: Sequence[KnownKey] = KEYS, earlier: Sequence[Verdict] = ()) -> Explanation:
    capture = read_capture(raw)
    return Explanation(capture.message(BASE), keys, POLICY, NOW, earlier, capture.remarks)


def causes(found: Explanation) -> list[str]:
    return [cause.cause for cause in found.causes]


def failing(found: Explanation) -> list[str]:
    return [rule.name for rule in found.rules if rule.holds is False]


GET: dict[str, Any] = {
    "method": "GET",
    "body": b"",
    "target": "/incoming-payments?wallet-address=https%3A%2F%2Fpay.example%2Falice&first=2",
    "sent": {"content-digest": None, "content-length": None, "content-type": None},
    "components": ("@method", "@target-uri", "authorization"),
}

ACCEPTED = {
    "a payment": request(),
    "LF alone": request(ending="\n"),
    "a list": request(**GET),
    "a whole URL in the first line": request(
        target="https://elsewhere.example/quotes/1", signs={"uri": f"{BASE}/quotes/1"}
    ),
    "a trailing slash, signed": request(target="/incoming-payments/"),
    "no colons around the signature": request(form=lambda text, signature: (f"sig1={text}", f"sig1={signature}")),
    "no label on the signature": request(form=lambda text, signature: (f"sig1={text}", signature)),
    "no quotes around the components": request(listed=f"({' '.join(COMPONENTS)})"),
    "the colons of .NET": request(**GET, signs={"uri": BASE + GET["target"].replace("%3A", ":")}),
    "a second signature, which is wrong": request(
        form=lambda text, signature: (f"b={text}, a={text}", f"b=:{b64encode(bytes(64)).decode()}:, a=:{signature}:")
    ),
    "a first signature, which is another's": request(
        form=lambda text, signature: (
            f"b={text.replace('app', 'proxy')}, a={text}",
            f"b=:{b64encode(bytes(64)).decode()}:, a=:{signature}:",
        )
    ),
    "a nonce": request(parameters=f'{PARAMETERS};nonce="n";expires={CREATED + 60}'),
    "a grant request with a strange Authorization header": request(target="/", sent={"authorization": "Basic eA=="}),
}


@pytest.mark.parametrize("raw", ACCEPTED.values(), ids=ACCEPTED)
def test_right_request_is_accepted(raw: bytes) -> None:
    found = explained(raw)
    assert found.verdict.reason is None
    assert causes(found) == []
    assert failing(found) == []
    assert all(rule.holds for rule in found.rules)
    assert found.key == APP


def digest_of(body: bytes) -> dict[str, str | None]:
    return {"content-digest": content_digest(body)}


def dumped(**style: Any) -> bytes:
    return json.dumps(json.loads(BODY), **style).encode()


def headed(header: str, *names: str) -> dict[str, Any]:
    """A GET that covers a header of its own."""
    return GET | {"components": (*GET["components"], *names), "sent": GET["sent"] | {names[0]: header}}


SIGNED_OVER_BASE = f"{BASE}/incoming-payments"
PREFIX = '("@method" "@target-uri" "authorization" "content-digest" "content-length" "content-type")'
# Name of the case: (raw request, reason of the refusal, cause that must be named, words of its sentence).
BROKEN: dict[str, tuple[bytes, str, str, str]] = {
    # Where the request was sent, as its signer saw it.
    "http signed, https expected": (
        request(signs={"uri": "http://pay.example/incoming-payments"}),
        "signature_mismatch",
        "other_scheme",
        "when the target is http://pay.example/incoming-payments, so base_url must be",
    ),
    "behind a proxy with another host": (
        request(sent={"x-forwarded-host": "shop.example"}, signs={"uri": "https://shop.example/incoming-payments"}),
        "signature_mismatch",
        "other_host",
        "https://shop.example/incoming-payments",
    ),
    "host and port of this machine": (
        request(sent={"host": "localhost:8080"}, signs={"uri": "http://localhost:8080/incoming-payments"}),
        "signature_mismatch",
        "other_host",
        "http://localhost:8080/incoming-payments",
    ),
    "in a Forwarded header": (
        request(
            sent={"forwarded": 'for=1.2.3.4;host="a.example:8443";proto=https'},
            signs={"uri": "https://a.example:8443/incoming-payments"},
        ),
        "signature_mismatch",
        "other_host",
        "https://a.example:8443/incoming-payments",
    ),
    "default port written out": (
        request(signs={"uri": "https://pay.example:443/incoming-payments"}),
        "signature_mismatch",
        "other_port",
        "https://pay.example:443/",
    ),
    "trailing slash added by the signer": (
        request(signs={"uri": f"{SIGNED_OVER_BASE}/"}),
        "signature_mismatch",
        "trailing_slash",
        "without a slash at its end",
    ),
    "trailing slash dropped by the signer": (
        request(target="/incoming-payments/", signs={"uri": SIGNED_OVER_BASE}),
        "signature_mismatch",
        "trailing_slash",
        "with the slash at its end",
    ),
    "slash doubled by the signer": (
        request(signs={"uri": f"{BASE}//incoming-payments"}),
        "signature_mismatch",
        "trailing_slash",
        "one slash before the path",
    ),
    "scheme and slash at once": (
        request(signs={"uri": "http://pay.example/incoming-payments/"}),
        "signature_mismatch",
        "other_scheme",
        "without a slash at its end",
    ),
    "path alone": (
        request(signs={"uri": "/incoming-payments"}),
        "signature_mismatch",
        "path_only",
        "when the target is /incoming-payments, so sign the URL exactly as it is sent, with its scheme and host",
    ),
    "host and path without a scheme": (
        request(signs={"uri": "pay.example/incoming-payments"}),
        "signature_mismatch",
        "host_without_scheme",
        "with its scheme and host",
    ),
    "query left out": (
        request(**GET, signs={"uri": SIGNED_OVER_BASE}),
        "signature_mismatch",
        "query",
        "with its query",
    ),
    "query decoded": (
        request(**GET, signs={"uri": f"{SIGNED_OVER_BASE}?wallet-address=https://pay.example/alice&first=2"}),
        "signature_mismatch",
        "encoding",
        "percent-encode it once",
    ),
    "percent signs in lower case": (
        request(**GET, signs={"uri": BASE + GET["target"].replace("%3A", "%3a").replace("%2F", "%2f")}),
        "signature_mismatch",
        "encoding",
        "%3a%2f%2f",
    ),
    # The method.
    "method in lower case": (
        request(signs={"method": "post"}),
        "signature_mismatch",
        "method_case",
        "when the method is post, so sign the method as it is sent, POST",
    ),
    "another method": (request(**GET, signs={"method": "POST"}), "signature_mismatch", "other_method", "is POST"),
    # Keys.
    "another key of the wallet": (
        request(seed=2),
        "signature_mismatch",
        "other_key",
        "verifies with the key other, so send keyid=\"other\" instead of 'app'",
    ),
    "a revoked key": (
        request(seed=3, parameters=PARAMETERS.replace("app", "old")),
        "unknown_key",
        "unusable_key",
        "with the key old, which was revoked on Monday",
    ),
    "a revoked key under the name of a good one": (
        request(seed=3),
        "signature_mismatch",
        "unusable_key",
        "sign with a valid key",
    ),
    "a keyid that is a URL": (
        request(parameters=PARAMETERS.replace("app", f"{BASE}/app#app")),
        "unknown_key",
        "other_key",
        'so send keyid="app"',
    ),
    "no keyid": (
        request(parameters=f";created={CREATED}"),
        "missing_keyid",
        "keyid",
        'with the key app, so send keyid="app"',
    ),
    "another key and another host": (
        request(seed=2, signs={"uri": "http://pay.example/incoming-payments"}),
        "signature_mismatch",
        "other_scheme",
        "and the key is other",
    ),
    # The body.
    "body written again, compact": (
        request(body=dumped(), sent=digest_of(dumped(separators=(",", ":"), ensure_ascii=False))),
        "digest_mismatch",
        "body_rewritten",
        "The digest matches when the body is compact JSON, so",
    ),
    "body written again, pretty": (
        request(sent=digest_of(dumped(indent=2, ensure_ascii=False))),
        "digest_mismatch",
        "body_rewritten",
        "JSON indented by 2 spaces",
    ),
    "line feed after the body": (
        request(body=BODY + b"\n", sent=digest_of(BODY)),
        "digest_mismatch",
        "body_newline",
        "sent without the line end after it",
    ),
    "line feed lost": (
        request(sent=digest_of(BODY + b"\n")),
        "digest_mismatch",
        "body_newline",
        "with a line feed after it",
    ),
    "line ends changed": (
        request(body=b"{\n}", sent=digest_of(b"{\r\n}")),
        "digest_mismatch",
        "body_line_ends",
        "CRLF for LF",
    ),
    "digest of nothing": (request(sent=digest_of(b"")), "digest_mismatch", "body_empty", "empty"),
    "digest in hexadecimal": (
        request(sent={"content-digest": f"sha-256={sha256(BODY).hexdigest()}"}),
        "digest_malformed",
        "one_rule",
        "Send Content-Digest as sha-512=:<base64>:",
    ),
    "digest in base64 of hexadecimal": (
        request(sent={"content-digest": f"sha-256=:{b64encode(sha256(BODY).hexdigest().encode()).decode()}:"}),
        "digest_mismatch",
        "one_rule",
        "Send Content-Digest as sha-512=:<base64>:",
    ),
    "digest in base64url": (
        request(
            body=b"{}  ", sent={"content-digest": f"sha-512=:{urlsafe_b64encode(sha512(b'{}  ').digest()).decode()}:"}
        ),
        "digest_malformed",
        "one_rule",
        "Send Content-Digest as sha-512=:<base64>:",
    ),
    "digest without colons": (
        request(sent={"content-digest": f"sha-512={b64encode(sha512(BODY).digest()).decode()}"}),
        "digest_malformed",
        "one_rule",
        "Send Content-Digest as sha-512=:<base64>:",
    ),
    "digest under the wrong name": (
        request(sent={"content-digest": f"sha-512=:{b64encode(sha256(BODY).digest()).decode()}:"}),
        "digest_mismatch",
        "one_rule",
        "Send Content-Digest as sha-512=:<base64>:",
    ),
    "digest under a name in capitals": (
        request(sent={"content-digest": f"SHA-256=:{b64encode(sha256(BODY).digest()).decode()}:"}),
        "digest_malformed",
        "one_rule",
        "Send Content-Digest as sha-512=:<base64>:",
    ),
    # Times.
    "created in milliseconds": (
        request(parameters=f';keyid="app";created={CREATED}123'),
        "created_in_future",
        "created_unit",
        "read as milliseconds (2025-11-21T05:40:00Z), so divide it by 1000",
    ),
    "created as a string": (
        request(parameters=f';keyid="app";created="{CREATED}"'),
        "missing_created",
        "one_rule",
        "created, an integer of Unix seconds",
    ),
    "an old capture": (
        request(parameters=f';keyid="app";created={CREATED - 86400}'),
        "created_too_old",
        "old_capture",
        "--at 2025-11-20T05:40:00Z",
    ),
    "a clock that is fast": (
        request(parameters=f';keyid="app";created={CREATED + 112}'),
        "created_in_future",
        "clock",
        "becomes fresh in 40 s",
    ),
    "local time for UTC": (
        request(parameters=f';keyid="app";created={CREATED + 7200}'),
        "created_in_future",
        "clock",
        "becomes fresh in 7128 s",
    ),
    "signed long before it was sent": (
        request(sent={"date": "Fri, 21 Nov 2025 05:40:10 GMT"}, parameters=f';keyid="app";created={CREATED - 1000}'),
        "created_too_old",
        "old_capture",
        "sign each request when it is sent",
    ),
    "expired": (
        request(parameters=f"{PARAMETERS};expires={CREATED + 1}"),
        "expired",
        "one_rule",
        "The signature has expired",
    ),
    # Headers.
    "Bearer signed and GNAP sent": (
        request(signs={"authorization": "Bearer token"}),
        "signature_mismatch",
        "authorization_scheme",
        "authorization is 'Bearer token'",
    ),
    "token signed without its scheme": (
        request(signs={"authorization": "token"}),
        "signature_mismatch",
        "authorization_scheme",
        "authorization is 'token'",
    ),
    "charset added after signing": (
        request(sent={"content-type": "application/json; charset=utf-8"}, signs={"content-type": "application/json"}),
        "signature_mismatch",
        "content_type",
        "content-type is 'application/json'",
    ),
    "length counted in characters": (
        request(signs={"content-length": str(len(BODY.decode()))}),
        "signature_mismatch",
        "content_length",
        f"content-length is '{len(BODY.decode())}'",
    ),
    "covered header lost": (
        request(
            sent={"content-length": None, "transfer-encoding": "identity"}, signs={"content-length": str(len(BODY))}
        ),
        "component_not_in_message",
        "content_length",
        f"content-length is '{len(BODY)}'",
    ),
    # What is covered, and how the base was written.
    "target not covered": (
        request(components=("@method", "authorization", "content-digest")),
        "missing_component",
        "one_rule",
        "must cover '@target-uri'",
    ),
    "component names in capitals": (
        request(listed=PREFIX.replace("content-digest", "Content-Digest")),
        "unsupported_component",
        "component_case",
        "in lower case",
    ),
    "component names in capitals, in the base too": (
        request(
            listed=PREFIX.replace("content-type", "Content-Type"),
            signs={"names": (*COMPONENTS[:-1], "Content-Type"), "Content-Type": "application/json"},
        ),
        "unsupported_component",
        "component_case",
        "the base has the names as written",
    ),
    "lines in another order": (
        request(**GET, signs={"names": ("@target-uri", "@method", "authorization")}),
        "signature_mismatch",
        "component_order",
        "@target-uri, @method, authorization",
    ),
    "a line left out of the base": (
        request(signs={"names": COMPONENTS[:-1]}),
        "signature_mismatch",
        "component_left_out",
        "no line for content-type",
    ),
    "alg not in the base": (
        request(parameters=f'{PARAMETERS};alg="ed25519"', signs={"last": PREFIX + PARAMETERS}),
        "signature_mismatch",
        "parameters_line",
        "lacks alg",
    ),
    "parameters in another order": (
        request(signs={"last": f'{PREFIX};created={CREATED};keyid="app"'}),
        "signature_mismatch",
        "parameters_line",
        f'comes with created={CREATED};keyid="app"',
    ),
    "label in the base": (
        request(signs={"last": f"sig1={PREFIX}{PARAMETERS}"}),
        "signature_mismatch",
        "parameters_line",
        "has the label sig1",
    ),
}


@pytest.mark.parametrize(("raw", "reason", "cause", "words"), BROKEN.values(), ids=BROKEN)
def test_broken_request_is_refused_and_its_cause_named(raw: bytes, reason: str, cause: str, words: str) -> None:
    found = explained(raw)
    assert found.verdict.reason == reason
    assert cause in causes(found), found.causes
    assert words in next(one.sentence for one in found.causes if one.cause == cause)
    assert failing(found)


@pytest.mark.parametrize(
    ("parameters", "reason", "words"),
    [
        (f'{PARAMETERS};tag="other"', "unsupported_tag", 'send tag="gnap"'),
        (f'{PARAMETERS};alg="rsa"', "unsupported_algorithm", 'send alg="ed25519"'),
        (f'{PARAMETERS};nonce=""', "malformed_nonce", "The nonce must be"),
        (f'; keyid="app"; created={CREATED};nonce=1', "malformed_nonce", "The nonce must be"),
        (f";created={CREATED}", "missing_keyid", 'send keyid="app"'),
    ],
)
def test_other_parameters_are_not_blamed_on_created(parameters: str, reason: str, words: str) -> None:
    found = explained(request(parameters=parameters))
    assert found.verdict.reason == reason
    [cause] = found.causes
    assert words in cause.sentence


TOKEN_MISSING = Verdict(MISSING_TOKEN, "Send the access token as Authorization: GNAP <token>.")


@pytest.mark.parametrize(
    ("raw", "cause", "words"),
    [
        (request(sent={"authorization": "Bearer token"}), "one_rule", "Authorization: GNAP <token>"),
        (
            request(sent={"authorization": None}, components=("@method", "@target-uri", "content-digest")),
            "one_rule",
            "Authorization: GNAP <token>",
        ),
        (
            request(sent={"authorization": "Bearer token"}, signs={"authorization": "GNAP token"}),
            "authorization_scheme",
            "authorization is 'GNAP token'",
        ),
    ],
    ids=["Bearer sent", "nothing sent", "Bearer sent and GNAP signed"],
)
def test_token_that_the_endpoint_misses_is_missed(raw: bytes, cause: str, words: str) -> None:
    found = explained(raw, earlier=[TOKEN_MISSING])
    assert found.verdict == TOKEN_MISSING
    assert "token" in failing(found)
    assert causes(found) == [cause]
    assert words in found.causes[0].sentence


def test_first_of_earlier_errors_is_the_verdict() -> None:
    other = Verdict("not_acceptable", "Accept rules out JSON.")
    raw = request(sent={"authorization": None}, components=("@method", "@target-uri", "content-digest"))
    found = explained(raw, earlier=[other, TOKEN_MISSING])
    assert found.verdict == other
    assert "token" in failing(found)


Form = Callable[[str, str], tuple[str, str]]
# Name of the case: (form of the two headers, reason of the refusal, rule that fails, words of the verdict).
FORMS: dict[str, tuple[Form, str, str, str]] = {
    "signature in hexadecimal": (
        lambda text, signature: (f"sig1={text}", f"sig1=:{b64decode(signature).hex()}:"),
        "malformed_signature",
        "signature",
        "as canonical base64 between colons",
    ),
    "signature in quotes": (
        lambda text, signature: (f"sig1={text}", f'sig1="{signature}"'),
        "malformed_signature",
        "signature",
        "between colons",
    ),
    "signature with one colon": (
        lambda text, signature: (f"sig1={text}", f"sig1=:{signature}"),
        "malformed_signature",
        "signature",
        "between colons",
    ),
    "input without a label": (
        lambda text, signature: (text, f"sig1=:{signature}:"),
        "malformed_signature_input",
        "headers",
        "is not a dictionary such as sig1=",
    ),
    "different labels": (
        lambda text, signature: (f"sig1={text}", f"sig=:{signature}:"),
        "missing_signature",
        "headers",
        "Use the same label in the Signature-Input and the Signature header",
    ),
}


@pytest.mark.parametrize(("form", "reason", "rule", "words"), FORMS.values(), ids=FORMS)
def test_malformed_header_is_named_by_its_rule_and_the_verdict(form: Form, reason: str, rule: str, words: str) -> None:
    found = explained(request(form=form))
    assert found.verdict.reason == reason
    assert failing(found) == [rule]
    assert words in found.verdict.sentence


@pytest.mark.parametrize("unused", [OTHER, FORMER])
def test_no_cause_is_named_that_was_not_confirmed(unused: KnownKey) -> None:
    found = explained(request(**GET), keys=[unused])
    assert found.verdict.reason == "unknown_key"
    assert causes(found) == []
    assert "key" in failing(found)
    assert found.tried > 50


def test_wallet_without_keys_is_named() -> None:
    found = explained(request(), keys=[])
    assert (found.verdict.reason, found.causes, failing(found)) == ("unknown_key", [], ["key"])
    assert "valid keys: none" in next(rule.sentence for rule in found.rules if rule.name == "key")


def test_rules_are_applied_whatever_the_others_say() -> None:
    raw = request(
        sent={"content-digest": content_digest(b"other"), "authorization": "Bearer token"},
        components=("@method", "content-digest"),
        parameters=f';keyid="app";created={CREATED - 86400}',
    )
    found = explained(raw, earlier=[TOKEN_MISSING])
    assert failing(found) == ["coverage", "freshness", "digest", "token"]
    told = {rule.name: rule.sentence for rule in found.rules}
    assert told["coverage"] == "not covered: @target-uri, authorization, which must be"
    assert "86412 s old, and 300 s are allowed" in told["freshness"]
    assert content_digest(b"other") in told["digest"]
    assert content_digest(BODY) in told["digest"]
    assert told["verification"] == "the signature is one by app over this base"


def test_request_without_a_signature_says_so() -> None:
    found = explained(b"POST / HTTP/1.1\r\nHost: pay.example\r\n\r\n")
    assert (found.verdict.reason, failing(found), found.entry, found.base) == (
        "missing_signature",
        ["headers"],
        None,
        None,
    )
    assert causes(found) == []


def test_remarks_tell_what_is_odd_but_not_wrong() -> None:
    several = explained(ACCEPTED["a second signature, which is wrong"])
    assert several.remarks == ["There are 2 signatures; examined here is a."]
    assert explained(ACCEPTED["a nonce"]).remarks == [
        "The signature has a nonce. Whether it was used before, the server alone knows."
    ]
    public = request(**GET | {"components": ("@method", "@target-uri"), "sent": GET["sent"] | {"authorization": None}})
    told = {rule.name: rule.sentence for rule in explained(public).rules}
    assert "no Authorization header" in told["token"]


def test_base_is_the_one_that_the_server_builds() -> None:
    found = explained(request(**GET))
    assert found.base is not None
    assert found.base.decode().split("\n") == [
        '"@method": GET',
        f'"@target-uri": {BASE}{GET["target"]}',
        '"authorization": GNAP token',
        f'"@signature-params": ("@method" "@target-uri" "authorization"){PARAMETERS}',
    ]


def test_digest_of_a_deeply_nested_body_is_looked_for_without_failing() -> None:
    body = b"[" * 50_000
    found = explained(request(body=body, sent=digest_of(body + b"\n")))
    assert causes(found) == ["body_newline"]


@pytest.mark.parametrize("created", [0, -1, 10**14, 999_999_999_999_999])
def test_created_of_any_size_is_explained(created: int) -> None:
    found = explained(request(parameters=f';keyid="app";created={created}'))
    assert found.verdict.reason in {"created_too_old", "created_in_future"}
    assert "freshness" in failing(found)


WHOLE = request()


@given(st.integers(0, len(WHOLE) - 1), st.binary(max_size=3), st.integers(0, 3))
def test_damaged_request_never_makes_it_fail_and_the_verdict_is_that_of_the_verifier(
    position: int, put: bytes, taken: int
) -> None:
    raw = WHOLE[:position] + put + WHOLE[position + taken :]
    try:
        capture = read_capture(raw)
    except ValueError:
        return
    # With the one key that it names, there is nothing to search for twice.
    message = capture.message(BASE)
    found = Explanation(message, [], POLICY, NOW)
    verified = verify_message(message, APP.jwk, NOW, POLICY)
    if found.verdict.reason != "unknown_key":
        assert not isinstance(verified, Verified)
        assert found.verdict.reason == verified.reason
    elif isinstance(verified, Verified):
        assert Explanation(message, [APP], POLICY, NOW).verdict.reason is None
    else:
        assert verified.reason in {Reason.SIGNATURE_MISMATCH, Reason.UNKNOWN_KEY}


SIGNED_HEADERS = [b"content-digest", b"signature", b"signature-input", b"authorization", b"host", b"forwarded"]
CAPTURE = read_capture(WHOLE)


@example(header=b"content-digest", value="sha-256=:/===:", body=BODY)
@example(header=b"content-digest", value="sha-256=:_===:", body=BODY)
@example(header=b"content-digest", value="", body=b'"\\ud800"')
@given(
    header=st.sampled_from(SIGNED_HEADERS),
    value=st.builds(
        str.format,
        st.sampled_from(
            ["{}", "sha-256=:{}:", "sig1=:{}:", "sig1=({});{}", "sig1=({});keyid={}", "GNAP {}", "host={}"]
        ),
        *[st.text(alphabet='AQ/+_-=:;,"() ', max_size=8) | st.text(max_size=8)] * 2,
    ),
    body=st.binary(max_size=12) | st.just(BODY),
)
def test_headers_and_bodies_of_any_kind_are_explained(header: bytes, value: str, body: bytes) -> None:
    text = " ".join(value.split("\n")).encode("utf-8", "replace")
    sent = [(name, own) for name, own in CAPTURE.headers if name.lower().encode() != header]
    message = replace(CAPTURE, headers=[*sent, (header.decode(), text)], body=body).message(BASE)
    found = Explanation(message, [APP], POLICY, NOW)
    assert found.rules
    assert found.verdict.sentence


@pytest.mark.parametrize(
    "text", ["sha-256=:/===:", "sha-256=:_===:", "sha-512=:A_A:", "sha-256=_", "=:", "sha-256=:A:"]
)
def test_digest_that_is_no_base64_is_refused_and_not_a_failure(text: str) -> None:
    found = explained(request(sent={"content-digest": text}))
    assert found.verdict.reason in {"digest_malformed", "digest_mismatch", "digest_unsupported"}
    assert failing(found) == ["digest"]
