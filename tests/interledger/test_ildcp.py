"""IL-DCP: question and answer of the vectors byte for byte, and answers that went wrong."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.amounts import Asset
from payres.clock import parse_time
from payres.interledger import ildcp, oer
from payres.interledger.oer import CodecError
from payres.interledger.packets import Fulfill, Prepare, decode_prepare, decode_reply, encode

Vector = dict[str, Any]
Mangle = Callable[[int, int, Sequence[bytes]], Iterator[bytes]]

USD = Asset("USD", 2)


def test_request_vector(vectors: Vector) -> None:
    vector = vectors["ildcp"]
    data = bytes.fromhex(vector["request"]["hex"])
    prepare = ildcp.request(parse_time(vector["request"]["expiresAt"]))
    assert encode(prepare) == data
    assert decode_prepare(data) == prepare
    assert ildcp.is_request(prepare)
    assert prepare.condition.hex() == vector["condition"]


def test_answer_vector(vectors: Vector) -> None:
    vector = vectors["ildcp"]["response"]
    data, asset = bytes.fromhex(vector["hex"]), Asset(vector["assetCode"], vector["assetScale"])
    fulfill = ildcp.answer(vector["clientAddress"], asset)
    assert encode(fulfill) == data
    assert decode_reply(data) == fulfill
    assert ildcp.parse_answer(fulfill) == (vector["clientAddress"], asset)
    assert fulfill.fulfillment.hex() == vectors["ildcp"]["fulfillment"]


@pytest.mark.parametrize("destination", ["peer.config.a", "peer.configuration", "peer.settle", "g.peer.config"])
def test_other_destinations_ask_for_nothing(destination: str) -> None:
    assert not ildcp.is_request(Prepare(0, 0, ildcp.CONDITION, destination))


@given(
    st.from_regex(r"(g|test|private)(\.[a-zA-Z0-9_~-]{1,9}){1,4}", fullmatch=True),
    st.text(max_size=32),
    st.integers(0, 255),
)
def test_answer_comes_back(address: str, code: str, scale: int) -> None:
    assert ildcp.parse_answer(ildcp.answer(address, Asset(code, scale))) == (address, Asset(code, scale))


@pytest.mark.parametrize(
    ("address", "scale", "reason"),
    [
        ("", 2, "ILP address"),
        ("test", 2, "ILP address"),
        ("test.é", 2, "ILP address"),
        ("test.a", 256, "range"),
        ("test.a", -1, "range"),
    ],
)
def test_answer_of_what_nobody_could_read_is_not_made(address: str, scale: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ildcp.answer(address, Asset("USD", scale))


@pytest.mark.parametrize(
    "fulfill",
    [
        Fulfill(bytes(32)),
        Fulfill(b"\x01" + bytes(31), ildcp.answer("test.a", USD).data),
        Fulfill(bytes(32), oer.var_octets(b"test") + b"\x02\x03USD"),
        Fulfill(bytes(32), oer.var_octets(b"test.\xe9") + b"\x02\x03USD"),
        Fulfill(bytes(32), oer.var_octets(b"test.a") + b"\x02\x03US"),
        Fulfill(bytes(32), oer.var_octets(b"test.a") + b"\x02\x01\xff"),
    ],
)
def test_wrong_answer_is_refused(fulfill: Fulfill) -> None:
    with pytest.raises(CodecError):
        ildcp.parse_answer(fulfill)


def test_mangled_answers_are_refused_or_mean_what_they_say(mangle: Mangle) -> None:
    read = refused = 0
    for data in mangle(5, 10_000, [ildcp.answer("test.parent.child", USD).data]):
        try:
            address, asset = ildcp.parse_answer(Fulfill(bytes(32), data))
        except CodecError:
            refused += 1
        else:
            read += 1
            assert ildcp.parse_answer(ildcp.answer(address, asset)) == (address, asset)
    assert min(read, refused) > 1_000
