"""Encodings: the vectors, the examples of RFC 30, and what is refused."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.protocol.clock import EARLIEST, LATEST, parse_time
from payres.interledger import oer
from payres.interledger.oer import CodecError, OctetReader

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Vector = dict[str, Any]


def test_var_uint_vectors(var_uint_vector: Vector) -> None:
    value, data = int(var_uint_vector["value"]), bytes.fromhex(var_uint_vector["hex"])
    assert oer.var_uint(value) == data
    assert OctetReader(data).var_uint() == value


def test_length_vectors(length_vector: Vector) -> None:
    contents = bytes(length_vector["length"])
    data = bytes.fromhex(length_vector["prefix"]) + contents
    assert oer.var_octets(contents) == data
    assert OctetReader(data).var_octets() == contents


def test_uint64_vectors(uint64_vector: Vector) -> None:
    value, data = int(uint64_vector["value"]), bytes.fromhex(uint64_vector["hex"])
    assert oer.uint64(value) == data


def test_timestamp_vectors(timestamp_vector: Vector) -> None:
    us, data = parse_time(timestamp_vector["iso"]), bytes.fromhex(timestamp_vector["hex"])
    assert oer.timestamp(us) == data
    assert oer.parse_timestamp(data) == us


LENGTHS_NOT_THE_SHORTEST = ["8100", "810100", "817f" + "00" * 127, "82000100", "820080" + "00" * 128]
LENGTHS_THAT_LEAD_OUTSIDE = ["", "80", "81", "8201", "05aabb", "8180" + "00" * 127, "ff" + "ff" * 127]


@pytest.mark.parametrize(
    ("read", "data"),
    [
        *((OctetReader.var_octets, data) for data in (*LENGTHS_NOT_THE_SHORTEST, *LENGTHS_THAT_LEAD_OUTSIDE)),
        (OctetReader.uint8, ""),
        (lambda reader: reader.octets(2), "00"),
        *((OctetReader.var_uint, data) for data in ("", "00", "0201", "09010000000000000000")),
        (lambda reader: reader.var_uint(saturate=True), "00"),
        *((lambda reader: reader.text("ascii"), data) for data in ("0180", "02c3a9")),
        *((OctetReader.text, data) for data in ("0180", "03eda080")),  # a surrogate
    ],
)
def test_reader_refuses_what_is_not_such_a_value(read: Callable[[OctetReader], object], data: str) -> None:
    with pytest.raises(CodecError):
        read(OctetReader(bytes.fromhex(data)))


@pytest.mark.parametrize(("data", "value"), [("020001", 1), ("0800000000000000ff", 255), ("080000000000000000", 0)])
def test_reader_takes_zeros_before_a_number_up_to_eight_bytes(data: str, value: int) -> None:
    assert OctetReader(bytes.fromhex(data)).var_uint() == value


# RFC 30, fixed-length timestamps


NO_TIMESTAMPS = (
    "20171224235312.431+0200 201712242153124318 20171324161432200 20171224230000000. 20171224240000000 20171224215300"
    " 2017122421 20161231235960852 20170229120000000 20171200120000000 20171224126000000 00000101000000000"
    " +2017122416143220 2017_224161432200 ２０１７１２２４１６１４３２２００"
)


@pytest.mark.parametrize("text", [*NO_TIMESTAMPS.split(" "), "2017 224161432200", ""])
def test_timestamps_that_do_not_exist_are_refused(text: str) -> None:
    with pytest.raises(CodecError):
        oer.parse_timestamp(text.encode())


@given(st.integers(EARLIEST, LATEST))
def test_timestamps_agree_with_the_calendar_and_come_back_rounded_down(us: int) -> None:
    at = EPOCH + timedelta(microseconds=us)
    assert oer.timestamp(us).decode() == f"{at.year:04}{at:%m%d%H%M%S}{at.microsecond // 1000:03}"
    assert oer.parse_timestamp(oer.timestamp(us)) == us // 1000 * 1000
