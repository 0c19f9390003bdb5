import json
from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.protocol import wire
from payres.core.protocol.errors import DomainError
from payres.core.protocol.gnap import ContinueRequest, GrantRequest, TokenResponse
from payres.core.protocol.limits import DEFAULT_BODY_BYTES
from payres.core.protocol.wire import IncomingPaymentRequest, OutgoingPaymentRequest, QuoteRequest, repeated_member
from tests.helpers import Json

SPENDING = {"type": "outgoing-payment", "actions": ["create"], "identifier": "w"}


def test_decode_says_which_rule_the_body_breaks_and_where() -> None:
    with pytest.raises(
        DomainError, match=r"^The body breaks a rule: walletAddress must have at most 2048 characters"
    ) as refusal:
        wire.decode(msgspec.json.Decoder(IncomingPaymentRequest), json.dumps({"walletAddress": "x" * 2049}).encode())
    assert (refusal.value.status, refusal.value.details) == (400, {"field": "walletAddress"})


def test_metadata_that_is_too_long_is_told_its_limit() -> None:
    with pytest.raises(DomainError, match="metadata may have at most 4096 bytes as it is written, and this has 4097"):
        wire.metadata_text(msgspec.Raw(b'{"a":"%b"}' % (b"x" * 4089)))


class Bounded(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1)] = "x"
    scopes: Annotated[list[str], msgspec.Meta(min_length=1, max_length=2)] = msgspec.field(
        default_factory=lambda: ["x"]
    )
    scale: Annotated[int, msgspec.Meta(ge=1)] = 1
    password: Annotated[str, msgspec.Meta(min_length=8)] = "12345678"


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ({"name": ""}, "name must not be empty"),
        ({"scopes": []}, "scopes must not be empty"),
        ({"scopes": ["a", "b", "c"]}, "scopes must have at most 2 of them"),
        ({"scale": 0}, "scale must be at least 1"),
        ({"password": "short"}, "password must have at least 8 characters"),
    ],
)
def test_bounds_are_told_in_words(body: Json, rule: str) -> None:
    with pytest.raises(DomainError, match=rf"^The body breaks a rule: {rule}$"):
        wire.decode(msgspec.json.Decoder(Bounded), json.dumps(body).encode())


class WithDefault(msgspec.Struct):
    a: int = 0


@pytest.mark.parametrize("body", [b'{"b":1,"b":2}', b'{"a":1,"b":1,"b":2}'])
def test_decode_finds_repeated_members_beside_defaults(body: bytes) -> None:
    with pytest.raises(DomainError, match="The body has b twice"):
        wire.decode(msgspec.json.Decoder(WithDefault), body, has_defaults=True)


def test_decode_refuses_what_is_nested_too_deeply_whoever_finds_it() -> None:
    """The decoder bears a little more than the search for repeated members, and both bear 1,000 levels in Python 3.11,
    1,500 in 3.12 and 10,000 in 3.13."""
    decoder = msgspec.json.Decoder(WithDefault)
    outcomes: set[object] = set()
    for depth in (*range(1, 1010), *range(1490, 1510), *range(9990, 10_010), DEFAULT_BODY_BYTES // 2 - 8):
        try:
            outcomes.add(wire.decode(decoder, b'{"b":' + b"[" * depth + b"]" * depth + b"}", has_defaults=True).a)
        except DomainError as error:
            outcomes.add(str(error))
    assert outcomes == {0, "The body has too many objects and arrays inside each other"}


@pytest.mark.parametrize(
    "text",
    [
        *(r"\ud800", r"\ud800x", r"\uDC00", r"x\udbffxxxxxxxxx", r"\ud800\u0041", r"\udc00\ud800", r"\\\ud800"),
        r"\ud83d\ude00\ude00",
    ],
)
def test_unpaired_surrogate_is_named(text: str) -> None:
    for body in (
        '{"metadata":{"a":"%s"}}',
        '{"metadata":{"%s":1}}',
        '{"metadata":{"a":["%s"]}}',
        '{"walletAddress":"%s"}',
    ):
        with pytest.raises(DomainError, match="unpaired surrogate") as refusal:
            wire.decode(msgspec.json.Decoder(IncomingPaymentRequest), (body % text).encode())
        assert (refusal.value.status, refusal.value.details) == (400, {"field": "body"})


@pytest.mark.parametrize("text", [r"\ud83d\ude00", r"\\ud800", r"\u0000\uffff", r"\\\\udc00\n"])
def test_characters_that_only_look_like_half_a_pair_are_taken(text: str) -> None:
    metadata = f'{{"a":"{text}"}}'
    body = f'{{"metadata":{metadata}}}'.encode()
    request = wire.decode(msgspec.json.Decoder(IncomingPaymentRequest), body)
    assert wire.metadata_text(request.metadata) == metadata
    with pytest.raises(DomainError) as refusal:
        wire.decode(msgspec.json.Decoder(IncomingPaymentRequest), body[:-1])
    assert "surrogate" not in str(refusal.value)


TEXTS = st.text(st.sampled_from('ab:"\\/,{} é\n'), max_size=6)
NAMES = ("walletAddress", "expiresAt", "metadata")


@st.composite
def written(draw: st.DrawFn) -> tuple[str, bool]:
    """A body of a new incoming payment as some program might write it, and whether it has a member twice."""

    def text(value: str, own: str) -> str:
        """The string with some of the characters of `own` escaped."""
        plain = json.dumps(value, ensure_ascii=draw(st.booleans()))[1:-1]
        return '"' + "".join(f"\\u{ord(c):04x}" if c in own and draw(st.booleans()) else c for c in plain) + '"'

    blank = st.sampled_from(("", " ", "\n\t"))
    names = draw(st.lists(st.sampled_from(NAMES), max_size=4))
    members = []
    for name in names:
        value = text(draw(TEXTS) + "x", ":a")
        if name == "metadata":
            value = f'{{"a":{value}{draw(blank)},"a"{draw(blank)}:{value}}}'
        members.append(f"{text(name, 'ae')}{draw(blank)}:{draw(blank)}{value}")
    return "{" + ",".join(members) + "}", len(set(names)) < len(names)


@given(written())
def test_decode_takes_each_member_once(body: tuple[str, bool]) -> None:
    says, is_repeated = body
    decoder = msgspec.json.Decoder(IncomingPaymentRequest)
    if is_repeated:
        with pytest.raises(DomainError, match="twice") as refusal:
            wire.decode(decoder, says.encode())
        assert refusal.value.details["field"] in NAMES
    else:
        assert wire.decode(decoder, says.encode())


@pytest.mark.parametrize(
    ("shape", "body", "field"),
    [
        (
            IncomingPaymentRequest,
            '{"incomingAmount":{"value":"1","value":"1","assetCode":"A","assetScale":2}}',
            "value",
        ),
        (IncomingPaymentRequest, '{"incomingAmount":{"value":"1","assetCode":"A","assetScale":2,"x":1,"x":2}}', "x"),
        (GrantRequest, '{"client":{"jwk":{"kid":"a","kid":"b"}}}', "kid"),
        (GrantRequest, '{"client":"c","display":{"name":"a","name":"b"}}', "name"),
        (GrantRequest, '{"client":"c","interact":{"start":[],"start":[]}}', "start"),
        (ContinueRequest, '{"interact_ref":"a","interact_ref":"b"}', "interact_ref"),
    ],
)
def test_decode_finds_a_repeated_member_at_every_depth(shape: type[msgspec.Struct], body: str, field: str) -> None:
    with pytest.raises(DomainError, match="twice") as refusal:
        wire.decode(msgspec.json.Decoder(shape), body.encode())
    assert refusal.value.details["field"].rpartition(".")[2] == field


def test_decode_reads_ordinary_bodies_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for repeated members takes ten times as long as decoding, so it is done only where there may be some."""
    monkeypatch.delattr(wire, "repeated_member")
    amount = {"value": "1", "assetCode": "USD", "assetScale": 2}
    payment = {"walletAddress": "https://pay.example:8443/alice", "metadata": {"note": "10:30", "b": [{"c": ":"}]}}
    for shape, body in (
        (IncomingPaymentRequest, payment | {"incomingAmount": amount, "expiresAt": "2026-01-01T00:00:00Z"}),
        (OutgoingPaymentRequest, payment | {"quoteId": "https://pay.example/quotes/1"}),
        (QuoteRequest, {"walletAddress": "w", "receiver": "https://r", "method": "ilp", "debitAmount": amount}),
        (
            GrantRequest,
            {"client": "https://c", "access_token": {"access": [SPENDING | {"limits": {"receiver": "r:"}}]}},
        ),
        (GrantRequest, {"client": {"jwk": {"kid": "a", "x": None}}}),
        (ContinueRequest, {"interact_ref": "a"}),
    ):
        for separators in ((",", ":"), (", ", " : ")):
            assert wire.decode(msgspec.json.Decoder(shape), json.dumps(body, separators=separators).encode())


@pytest.mark.parametrize(
    ("body", "member"),
    [
        ('{"a":1,"b":{"a":1},"c":[{"a":1},{"a":1}]}', None),
        ('{"a":1,"b":2,"a":1}', "a"),
        ('{"a":{"b":1,"b":2}}', "a.b"),
        ('{"a":[1,[{"b":{"c":1}},{"b":{"c":1,"c":[]}}]]}', "a[1][1].b.c"),
        ('[{"a":1,"a":1}]', "[0].a"),
        ('{"a":1,"\\u0061":2}', "a"),
        ('{"":1,"":2}', ""),
        ('{"":{"":1,"":2}}', ""),
        ('{"a\\":":1,"a":2}', None),
        ('{"metadata":{"a":1,"a":2}}', None),
        ('{"metadata":[{"a":1,"a":2}]}', None),
        ('{"metadata":1,"metadata":2}', "metadata"),
        ('{"metadata":{"a":1,"a":2},"b":{"c":1,"c":2}}', "b.c"),
        ('{"b":{"metadata":{"a":1,"a":2}}}', "b.metadata.a"),
        ('{"metadata":{"a":1,"a":' + "9" * 20_000 + "}}", None),
        ("1", None),
    ],
)
def test_repeated_member_is_named_by_its_path(body: str, member: str | None) -> None:
    assert repeated_member(body.encode()) == member


def test_repeated_member_is_found_in_linear_time() -> None:
    """Anybody's grant request is searched, before its signature is verified."""
    names = ",".join(f'"{number}":0' for number in range(300_000))
    assert repeated_member(f'{{{names},"299999":0}}'.encode()) == "299999"


def test_repeated_member_takes_bytes_that_are_no_text() -> None:
    assert repeated_member(b'{"metadata":{"a":"\xff","a":"\xfe"}}') is None
    assert repeated_member(b'{"a":"\xff","a":"\xfe"}') == "a"


USD = {"value": "1", "assetCode": "USD", "assetScale": 2}
CREATED = {"id": "https://a.example/1", "walletAddress": "https://a.example/w", "createdAt": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (wire.IncomingPayment, {**CREATED, "completed": False, "receivedAmount": USD}),
        (wire.PublicIncomingPayment, {"authServer": "https://a.example/"}),
        (wire.Quote, {**CREATED, "receiver": "r", "receiveAmount": USD, "debitAmount": USD, "method": "ilp"}),
        (
            wire.OutgoingPayment,
            {**CREATED, "receiver": "r", "receiveAmount": USD, "debitAmount": USD, "sentAmount": USD},
        ),
        (TokenResponse, {"access_token": {"value": "t", "manage": "https://a.example/token/1", "access": []}}),
    ],
)
def test_answers_of_other_servers_leave_out_what_the_standard_leaves_optional(kind: type, body: Json) -> None:
    assert json.loads(wire.encode(msgspec.json.decode(json.dumps(body), type=kind))) == body
