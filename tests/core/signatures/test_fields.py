"""The headers of a signature: structured fields, the forms SDKs really send, and malformed ones."""

from base64 import b64encode
from collections.abc import Callable
from string import ascii_letters, ascii_lowercase, digits, printable
from typing import Any

import http_sf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.protocol.errors import SignatureError
from payres.core.signatures.fields import (
    Parameters,
    SignatureMember,
    content_digest,
    covered_components,
    digest_problem,
    read_parameters,
    read_signatures,
    signature_bytes,
)
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
def test_read_signatures_agrees_with_the_structured_field_parser(fields: dict[str, Any], comma: str) -> None:
    texts = {label: http_sf.ser([member]) for label, member in fields.items()}
    header = comma.join(f"{label}={text}" for label, text in texts.items()).encode()
    assert http_sf.parse(header, tltype="dictionary") == fields
    members = read_signatures(header, ", ".join(f"{label}=:AAAA:" for label in fields).encode())
    assert [member.signed_text for member in members] == list(texts.values())
    assert [http_sf.parse(member.components.encode(), tltype="list") for member in members] == [
        [(items, {})] for items, _ in fields.values()
    ]


def refused_by(read: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(SignatureError) as caught:
        read(*arguments)
    return caught.value.rejected.reason


@pytest.mark.parametrize(
    ("input_value", "signature_value", "members"),
    [
        (
            b'sig1=( "@method"  "@target-uri" );keyid="a";  created=1  ',
            b"sig1=:AAAA: ",
            [SignatureMember('( "@method"  "@target-uri" )', ';keyid="a";  created=1', ":AAAA:")],
        ),
        (
            b"a=(), b=();x, c=()",
            f"c=:{BASE64}:, proxy=:AAAA: , b={BASE64}".encode(),
            [SignatureMember("()", ";x", BASE64), SignatureMember("()", "", f":{BASE64}:")],
        ),
        (b"mine=()", BASE64.encode(), [SignatureMember("()", "", BASE64)]),
    ],
    ids=["text as sent", "labels", "no label"],
)
def test_read_signatures_reads(input_value: bytes, signature_value: bytes, members: list[SignatureMember]) -> None:
    assert read_signatures(input_value, signature_value) == members


UNREADABLE_SIGNATURES = {
    "malformed_signature_input": (
        *((b"undefined", b"sig1=:AAAA:"), (b"sig1", b"sig1=:AAAA:"), (b"sig1=", b"sig1=:AAAA:")),
        *((b"sig1=:AAAA:", b"sig1=:AAAA:"), (b"Sig1=()", b"sig1=:AAAA:"), (b"sig1=(", b"sig1=:AAAA:")),
        *((b"sig1=())", b"sig1=:AAAA:"), (b"sig1=(())", b"sig1=:AAAA:"), (b'sig1=("a)', b"sig1=:AAAA:")),
        *((b"sig1=(),", b"sig1=:AAAA:"), (b"sig1=(),,sig2=()", b"sig1=:AAAA:"), (b"sig1=(), sig1=()", b"sig1=:AAAA:")),
        *((b"sig1=(); caf\xe9", b"sig1=:AAAA:"), (b"a=(" + b" " * 8190 + b")", b"sig1=:AAAA:")),
    ),
    "too_many_signatures": ((b"a=(), b=(), c=(), d=(), e=()", b"sig1=:AAAA:"),),
    "malformed_signature": (
        *((b"sig1=()", b"undefined"), (b"sig1=()", b"sig1"), (b"sig1=()", b"sig1=:a:, sig1=:b:")),
        *((b"sig1=()", b"sig1=:\xff:"), (b"sig1=()", b"s=" + b"A" * 8192), (b"sig1=()", BASE64[:-4].encode())),
        (b"a=(), b=()", BASE64.encode()),
    ),
    "missing_signature": ((b"a=()", b"b=:AAAA:"), (b"", b"")),
}


@pytest.mark.parametrize(
    ("input_value", "signature_value", "reason"),
    [(*row, reason) for reason, rows in UNREADABLE_SIGNATURES.items() for row in rows],
)
def test_read_signatures_refuses(input_value: bytes, signature_value: bytes, reason: str) -> None:
    assert refused_by(read_signatures, input_value, signature_value) is reason


@pytest.mark.parametrize("text", [f":{BASE64}:", BASE64, f":{BASE64[:-2]}:", BASE64[:-2]])
def test_signature_bytes_reads_colons_or_none_and_padding_or_none(text: str) -> None:
    assert signature_bytes(text) == RAW


@pytest.mark.parametrize(
    "text",
    [
        *("", "::", f":{BASE64}", f"{BASE64}:", f"::{BASE64}::", f":{BASE64[:-1]}:", f":{BASE64}=:", f":{BASE64} :"),
        *(f":{BASE64};x=1", f":{BASE64}:\n", f":{BASE64[:40]} {BASE64[40:]}:", f":{b64encode(RAW[:63]).decode()}:"),
        *(f":{b64encode(RAW + b'x').decode()}:", f":{b64encode(bytes(256)).decode()}:", f":-_{BASE64[2:]}:"),
        # Only A, Q, g and w leave the last four bits, which are of no byte, empty.
        *(f":{BASE64[:85]}{last}==:" for last in f"{ascii_letters}{digits}+/" if last not in "AQgw"),
    ],
)
def test_signature_bytes_refuses(text: str) -> None:
    assert refused_by(signature_bytes, text) == "malformed_signature"


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


UNREADABLE_COMPONENTS = {
    "malformed_signature_input": (
        *("(@method  date)", '(@method "date")', '("@method" date)', '("@method""date")', '("@method"\t"date")'),
        *("(1 2.5)", "(:AAAA:)"),
    ),
    "unsupported_component": (
        *('("@method";req)', '("date";sf)', '("date";bs)', '("date";key="a")', '("Date")', "(@method Date)", '("")'),
        *('("a b")', '("a\\"b")', '("a@b")'),
    ),
    "duplicate_component": ('("date" "@method" "date")', "(date @method date)"),
}


@pytest.mark.parametrize(
    ("text", "reason"), [(text, reason) for reason, texts in UNREADABLE_COMPONENTS.items() for text in texts]
)
def test_covered_components_refuses_every_time(text: str, reason: str) -> None:
    for _ in range(2):  # the second time, a remembered answer must not let it through
        assert refused_by(covered_components, text) is reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (';created=7;keyid="k"', Parameters("k", 7, None, None)),
        (';keyid="k";created=7', Parameters("k", 7, None, None)),
        (';keyid="k";  created=7;alg="ed25519";tag="gnap"', Parameters("k", 7, None, None)),
        (';keyid="a\\"b\\\\c";created=7;nonce="n,;=()";expires=9', Parameters('a"b\\c', 7, "n,;=()", 9)),
        (';keyid="k";created=-7;context="mine";flag;other=?0', Parameters("k", -7, None, None)),
        (f';keyid="{"k" * 256}";created=7;nonce="{"n" * 256}"', Parameters("k" * 256, 7, "n" * 256, None)),
    ],
)
def test_read_parameters_reads(text: str, expected: Parameters) -> None:
    assert read_parameters(text) == expected


UNREADABLE_PARAMETERS = {
    "missing_keyid": (
        *("", ";created=7", ";created=7;keyid", ";created=7;keyid=k", ";created=7;keyid=1", ';created=7;keyid=""'),
        *(';created=7;keyid=%"k"', f';created=7;keyid="{"k" * 257}"'),
    ),
    "missing_created": (
        *(';keyid="k"', ';keyid="k";created', ';keyid="k";created=?1', ';keyid="k";created=7.0'),
        *(';keyid="k";created="7"', ';keyid="k";created=@7'),
    ),
    "expired": (';keyid="k";created=7;expires=?1', ';keyid="k";created=7;expires="9"'),
    "unsupported_algorithm": (
        *(';keyid="k";created=7;alg="rsa-pss-sha512"', ';keyid="k";created=7;alg="EdDSA"'),
        *(';keyid="k";created=7;alg=ed25519', ';keyid="k";created=7;alg'),
    ),
    "unsupported_tag": (';keyid="k";created=7;tag="gnap-rotate"', ';keyid="k";created=7;tag=gnap'),
    "malformed_nonce": (
        *(';keyid="k";created=7;nonce=n', ';keyid="k";created=7;nonce=1', ';keyid="k";created=7;nonce=""'),
        f';keyid="k";created=7;nonce="{"n" * 257}"',
    ),
    "malformed_signature_input": (
        *(';keyid="k";created=7;keyid="l"', ';keyid="k";created=7;created=7', ';keyid="k";created=1234567890123456'),
        *(';keyid="k";created=undefined;', ' ;keyid="k";created=7', ';keyid="k" ;created=7'),
        *(';keyid="\x01";created=7', "keyid", ';keyid="k";created=7,()'),
    ),
}


@pytest.mark.parametrize(
    ("text", "reason"), [(text, reason) for reason, texts in UNREADABLE_PARAMETERS.items() for text in texts]
)
def test_read_parameters_refuses(text: str, reason: str) -> None:
    assert refused_by(read_parameters, text) is reason


BODY = b'{"hello": "world"}'
SHA_256 = "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"
SHA_512 = "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:"
# RFC 9530 appendix B uses the same text with a line feed at the end.
BODY_LF = BODY + b"\n"
SHA_256_LF = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"
SHA_512_LF = "sha-512=:YMAam51Jz/jOATT6/zvHrLVgOYTGFy1d6GJiOHTohq4yP+pgk4vf2aCsyRZOtw8MjkM7iw7yZ/WkppmM44T3qg==:"


@pytest.mark.parametrize(
    ("body", "algorithm", "expected"),
    [
        (BODY, "sha-256", SHA_256),
        (BODY, "sha-512", SHA_512),
        (BODY_LF, "sha-256", SHA_256_LF),
        (BODY_LF, "sha-512", SHA_512_LF),
    ],
)
def test_content_digest_gives_the_known_value(body: bytes, algorithm: str, expected: str) -> None:
    assert content_digest(body, algorithm) == expected
    assert digest_problem(expected, body) is None


@pytest.mark.parametrize(
    "header",
    [
        f"{SHA_256}, {SHA_512}",
        f"{SHA_512},{SHA_256}",
        f"md5=:AAAA:, {SHA_256}",
        f"unixsum=30637, {SHA_256}",
        f"{SHA_512};note=1",
        SHA_512.replace("==:", ":"),  # RFC 9651 section 4.2.7: padding may be missing
    ],
)
def test_digest_problem_accepts_every_good_form(header: str) -> None:
    assert digest_problem(header, BODY) is None


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("", "digest_malformed"),
        ("undefined", "digest_unsupported"),  # a structured field: the key "undefined" with the value true
        ("sha-256", "digest_malformed"),
        ("sha-256=", "digest_malformed"),
        ("SHA-256=:AAAA:", "digest_malformed"),
        (SHA_256.replace(":", ""), "digest_malformed"),
        ('sha-256="X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE="', "digest_malformed"),
        ("sha-256=(:AAAA:)", "digest_malformed"),
        (f"{SHA_256},", "digest_malformed"),
        (f"{SHA_256_LF}, {SHA_256}", "digest_malformed"),  # the same algorithm twice
        (f"{SHA_256}, {SHA_256}", "digest_malformed"),
        (f"é=:AAAA:, {SHA_256}", "digest_malformed"),
        ("x" * 8193, "digest_malformed"),
        ("md5=:AAAA:", "digest_unsupported"),
        ("sha-384=:AAAA:", "digest_unsupported"),
        (SHA_256_LF, "digest_mismatch"),
        ("sha-256=::", "digest_mismatch"),
        (f"sha-256=:{b64encode(BODY).decode()}:", "digest_mismatch"),
        (f"{SHA_256}, {SHA_512_LF}", "digest_mismatch"),  # one good digest does not excuse a bad one
        (f"{SHA_256_LF}, {SHA_512}", "digest_mismatch"),
    ],
)
def test_digest_problem_says_what_is_wrong(header: str, reason: str) -> None:
    assert digest_problem(header, BODY) is reason


@given(st.binary(max_size=300), st.sampled_from(["sha-256", "sha-512"]), st.data())
def test_digest_problem_accepts_a_body_and_no_other(body: bytes, algorithm: str, data: st.DataObject) -> None:
    header = content_digest(body, algorithm)
    other = data.draw(st.binary(max_size=300).filter(lambda drawn: drawn != body))
    assert digest_problem(header, body) is None
    assert digest_problem(header, other) == "digest_mismatch"
