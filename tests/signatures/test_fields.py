"""The two signature headers: structured fields, the forms SDKs really send, and malformed ones."""

from base64 import b64encode
from string import ascii_lowercase, digits, printable
from typing import Any

import http_sf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.signatures.fields import (
    SignatureInput,
    covered_components,
    signature_bytes,
    split_signature,
    split_signature_input,
)
from payres.signatures.reasons import Reason, SignatureError
from tests.helpers import examples

RAW = bytes(range(64))
BASE64 = b64encode(RAW).decode()

keys = st.from_regex(rf"[a-z*][{ascii_lowercase}{digits}_.*-]{{0,8}}", fullmatch=True)
# Everything a structured-field string may hold, quotes, commas and parentheses above all.
strings = st.text(st.one_of(st.sampled_from('",()\\; ='), st.sampled_from(printable[:95])), max_size=12)
parameters = st.dictionaries(
    keys,
    st.one_of(strings, st.integers(-999_999_999_999_999, 999_999_999_999_999), st.booleans(), st.binary(max_size=9)),
    max_size=4,
)
inner_lists = st.tuples(st.lists(st.tuples(strings, parameters), max_size=4), parameters)


@examples(50)
@given(st.dictionaries(keys, inner_lists, min_size=1, max_size=4), st.sampled_from([", ", ",", " \t,\t "]))
def test_split_signature_input_agrees_with_the_structured_field_parser(fields: dict[str, Any], comma: str) -> None:
    texts = {label: http_sf.ser([member]) for label, member in fields.items()}
    header = comma.join(f"{label}={text}" for label, text in texts.items()).encode()
    assert http_sf.parse(header, tltype="dictionary") == fields
    inputs = split_signature_input(header)
    assert {entry.label: entry.text for entry in inputs} == texts
    assert [http_sf.parse(entry.components.encode(), tltype="list") for entry in inputs] == [
        [(items, {})] for items, _ in fields.values()
    ]


def test_split_signature_input_keeps_the_text_as_sent() -> None:
    [entry] = split_signature_input(b'sig1=( "@method"  "@target-uri" );keyid="a";  created=1  ')
    assert entry == SignatureInput("sig1", '( "@method"  "@target-uri" )', ';keyid="a";  created=1')
    assert entry.text == '( "@method"  "@target-uri" );keyid="a";  created=1'


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"undefined", Reason.MALFORMED_SIGNATURE_INPUT),
        (b"", Reason.MALFORMED_SIGNATURE_INPUT),
        (b"sig1", Reason.MALFORMED_SIGNATURE_INPUT),
        (b"sig1=", Reason.MALFORMED_SIGNATURE_INPUT),
        (b"sig1=:AAAA:", Reason.MALFORMED_SIGNATURE_INPUT),
        (b"Sig1=()", Reason.MALFORMED_SIGNATURE_INPUT),
        (b"sig1=(", Reason.MALFORMED_SIGNATURE_INPUT),
        (b"sig1=())", Reason.MALFORMED_SIGNATURE_INPUT),
        (b"sig1=(())", Reason.MALFORMED_SIGNATURE_INPUT),
        (b'sig1=("a)', Reason.MALFORMED_SIGNATURE_INPUT),
        (b"sig1=(),", Reason.MALFORMED_SIGNATURE_INPUT),
        (b"sig1=(),,sig2=()", Reason.MALFORMED_SIGNATURE_INPUT),
        (b"sig1=(), sig1=()", Reason.MALFORMED_SIGNATURE_INPUT),
        (b"sig1=(); caf\xe9", Reason.MALFORMED_SIGNATURE_INPUT),
        (b"a=(" + b" " * 8190 + b")", Reason.MALFORMED_SIGNATURE_INPUT),
        (b"a=(), b=(), c=(), d=(), e=()", Reason.TOO_MANY_SIGNATURES),
    ],
)
def test_split_signature_input_refuses(value: bytes, reason: Reason) -> None:
    with pytest.raises(SignatureError) as caught:
        split_signature_input(value)
    assert caught.value.rejected.reason is reason


def test_split_signature_reads_labels_and_leaves_values_for_later() -> None:
    value = f"sig1=:{BASE64}:, proxy=:AAAA: , php={BASE64}".encode()
    inputs = split_signature_input(b"sig1=(), proxy=(), php=()")
    assert split_signature(value, inputs) == {"sig1": f":{BASE64}:", "proxy": ":AAAA:", "php": BASE64}


def test_split_signature_gives_an_unlabelled_signature_to_the_only_input() -> None:
    assert split_signature(BASE64.encode(), split_signature_input(b"mine=()")) == {"mine": BASE64}


def test_split_signature_refuses_an_unlabelled_signature_with_several_inputs() -> None:
    with pytest.raises(SignatureError) as caught:
        split_signature(BASE64.encode(), split_signature_input(b"a=(), b=()"))
    assert caught.value.rejected.reason is Reason.MALFORMED_SIGNATURE


@pytest.mark.parametrize(
    "value",
    [b"undefined", b"sig1", b"sig1=:a:, sig1=:b:", b"sig1=:\xff:", b"s=" + b"A" * 8192, BASE64[:-4].encode()],
)
def test_split_signature_refuses(value: bytes) -> None:
    with pytest.raises(SignatureError) as caught:
        split_signature(value, split_signature_input(b"sig1=()"))
    assert caught.value.rejected.reason is Reason.MALFORMED_SIGNATURE


@pytest.mark.parametrize("text", [f":{BASE64}:", BASE64, f":{BASE64[:-2]}:", BASE64[:-2]])
def test_signature_bytes_reads_colons_or_none_and_padding_or_none(text: str) -> None:
    assert signature_bytes(text) == RAW


@pytest.mark.parametrize(
    "text",
    [
        "",
        "::",
        f":{BASE64}",
        f"{BASE64}:",
        f"::{BASE64}::",
        f":{BASE64[:-1]}:",
        f":{BASE64}=:",
        f":{BASE64} :",
        f":{BASE64};x=1",
        f":{BASE64}:\n",
        f":{BASE64[:40]} {BASE64[40:]}:",
        f":{b64encode(RAW[:63]).decode()}:",
        f":{b64encode(RAW + b'x').decode()}:",
        f":{b64encode(bytes(256)).decode()}:",
        f":-_{BASE64[2:]}:",
    ],
)
def test_signature_bytes_refuses(text: str) -> None:
    with pytest.raises(SignatureError) as caught:
        signature_bytes(text)
    assert caught.value.rejected.reason is Reason.MALFORMED_SIGNATURE


def test_signature_bytes_takes_only_one_spelling_of_the_last_character() -> None:
    accepted = []
    for last in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/":
        try:
            accepted.append((last, signature_bytes(f":{BASE64[:85]}{last}==:")))
        except SignatureError:
            continue
    assert [last for last, _ in accepted] == ["A", "Q", "g", "w"]
    assert len({raw for _, raw in accepted}) == 4


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("()", ()),
        ('("@method" "content-type")', ("@method", "content-type")),
        ("(@method @target-uri content-type)", ("@method", "@target-uri", "content-type")),
        ('( "@method"   "date" )', ("@method", "date")),
    ],
)
def test_covered_components_reads_quoted_and_bare_names(text: str, names: tuple[str, ...]) -> None:
    assert covered_components(text) == names


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(@method  date)", Reason.MALFORMED_SIGNATURE_INPUT),
        ('(@method "date")', Reason.MALFORMED_SIGNATURE_INPUT),
        ('("@method" date)', Reason.MALFORMED_SIGNATURE_INPUT),
        ('("@method""date")', Reason.MALFORMED_SIGNATURE_INPUT),
        ('("@method"\t"date")', Reason.MALFORMED_SIGNATURE_INPUT),
        ("(1 2.5)", Reason.MALFORMED_SIGNATURE_INPUT),
        ("(:AAAA:)", Reason.MALFORMED_SIGNATURE_INPUT),
        ('("@method";req)', Reason.UNSUPPORTED_COMPONENT),
        ('("date";sf)', Reason.UNSUPPORTED_COMPONENT),
        ('("date";bs)', Reason.UNSUPPORTED_COMPONENT),
        ('("date";key="a")', Reason.UNSUPPORTED_COMPONENT),
        ('("Date")', Reason.UNSUPPORTED_COMPONENT),
        ("(@method Date)", Reason.UNSUPPORTED_COMPONENT),
        ('("")', Reason.UNSUPPORTED_COMPONENT),
        ('("a b")', Reason.UNSUPPORTED_COMPONENT),
        ('("a\\"b")', Reason.UNSUPPORTED_COMPONENT),
        ('("a@b")', Reason.UNSUPPORTED_COMPONENT),
        ('("date" "@method" "date")', Reason.DUPLICATE_COMPONENT),
        ("(date @method date)", Reason.DUPLICATE_COMPONENT),
    ],
)
def test_covered_components_refuses_every_time(text: str, reason: Reason) -> None:
    for _ in range(2):  # the second time, a remembered answer must not let it through
        with pytest.raises(SignatureError) as caught:
            covered_components(text)
        assert caught.value.rejected.reason is reason
