"""ILPv4 packets: the vectors byte for byte both ways, what is refused, and packets that went wrong."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.protocol.clock import EARLIEST, LATEST, parse_time
from payres.interledger import oer
from payres.interledger.oer import MAX_DATA, MAX_MESSAGE, CodecError, decode_prepare, decode_reply, encode_packet
from payres.interledger.packets import Code, Fulfill, Prepare, Reject, too_large_data

Vector = dict[str, Any]
Packet = Prepare | Fulfill | Reject

PREPARE = Prepare(107, parse_time("2026-11-21T03:04:05.006Z"), bytes(range(32)), "example.alice", b"hello")
FULFILL = Fulfill(bytes(range(32)), b"hello")
REJECT = Reject("F02", "test.connector", "no route", b"hello")

hashes = st.binary(min_size=32, max_size=32)
datas = st.binary(max_size=300)
addresses = st.from_regex(r"(g|private|test[1-3]?|local)(\.[a-zA-Z0-9_~-]{1,20}){1,5}", fullmatch=True)
prepares = st.builds(
    Prepare,
    amount=st.integers(0, 2**64 - 1),
    expires_at=st.integers(EARLIEST, LATEST).map(lambda us: us // 1000 * 1000),
    condition=hashes,
    destination=addresses,
    data=datas,
)
replies = st.builds(Fulfill, fulfillment=hashes, data=datas) | st.builds(
    Reject,
    code=st.sampled_from([code.value for code in Code]) | st.from_regex("[FTR][0-9]{2}", fullmatch=True),
    triggered_by=st.just("") | addresses,
    message=st.text(max_size=200),
    data=datas,
)


def prepare_of(vector: Vector) -> Prepare:
    condition, data = bytes.fromhex(vector["executionCondition"]), bytes.fromhex(vector["data"])
    return Prepare(int(vector["amount"]), parse_time(vector["expiresAt"]), condition, vector["destination"], data)


def envelope(kind: int, contents: bytes) -> bytes:
    return bytes((kind,)) + oer.var_octets(contents)


def contents(packet: Packet) -> bytes:
    return oer.OctetReader(encode_packet(packet), 1).var_octets()


def fulfill_of(vector: Vector) -> Fulfill:
    return Fulfill(bytes.fromhex(vector["fulfillment"]), bytes.fromhex(vector["data"]))


def reject_of(vector: Vector) -> Reject:
    assert vector["code"] in list(Code)
    return Reject(vector["code"], vector["triggeredBy"], vector["message"], bytes.fromhex(vector["data"]))


def decode(data: bytes) -> Packet:
    """By its first byte, which says what the packet is."""
    return decode_prepare(data) if data[:1] == b"\x0c" else decode_reply(data)


@pytest.mark.parametrize(
    ("kind", "packet_of"), [("prepare", prepare_of), ("fulfill", fulfill_of), ("reject", reject_of)]
)
def test_vectors_both_ways(vectors: Vector, kind: str, packet_of: Callable[[Vector], Packet]) -> None:
    for vector in vectors[kind]:
        data, packet = bytes.fromhex(vector["hex"]), packet_of(vector)
        assert encode_packet(packet) == data, vector
        assert decode(data) == packet, vector


def test_invalid_vectors(invalid_vector: Vector) -> None:
    data = bytes.fromhex(invalid_vector["hex"])
    for decode in (decode_prepare, decode_reply):
        with pytest.raises(CodecError):
            decode(data)


def test_bytes_after_a_packet_are_ignored(vectors: Vector) -> None:
    trailing = vectors["trailingBytes"]
    assert decode_reply(bytes.fromhex(trailing["hex"])).data.hex() == trailing["data"]
    assert decode_prepare(encode_packet(PREPARE) + b"more") == PREPARE
    assert decode_prepare(envelope(12, contents(PREPARE) + b"more")) == PREPARE
    assert decode_reply(envelope(13, contents(FULFILL) + b"more")) == FULFILL
    assert decode_reply(envelope(14, contents(REJECT) + b"more")) == REJECT


def test_fields_end_where_their_packet_ends() -> None:
    """What follows a packet must never be taken for a part of it."""
    assert contents(PREPARE)[-6:] == b"\x05hello"
    with pytest.raises(CodecError):
        decode_prepare(envelope(12, contents(PREPARE)[:-1]) + b"o")
    with pytest.raises(CodecError):
        decode_reply(envelope(13, contents(FULFILL)[:-1]) + b"o")


def changed(packet: Packet, old: bytes, new: bytes) -> bytes:
    """The packet with some of its contents replaced and its length put right."""
    assert contents(packet).count(old) == 1
    return envelope(encode_packet(packet)[0], contents(packet).replace(old, new))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (changed(PREPARE, b"20261121", b"20261321"), "no day"),
        (changed(PREPARE, b"20261121", b"20260229"), "no day"),
        (changed(PREPARE, b"030405006", b"240000000"), "time of day"),
        (changed(PREPARE, b"030405006", b"03040500 "), "17 digits"),
        (changed(PREPARE, b"\x0dexample.alice", b"\x00"), "destination"),
        (changed(PREPARE, b"\x0dexample.alice", b"\x07example"), "destination"),
        (changed(PREPARE, b"example.alice", b"example.alic\xe9"), "ascii"),
        (changed(PREPARE, b"example.alice", b"Example.alice"), "destination"),
        (changed(PREPARE, b"\x0dexample.alice", oer.var_octets(b"g." + b"a" * 1022)), "destination"),
        (changed(PREPARE, b"\x05hello", b""), "ends"),
        (envelope(12, b""), "short"),
        (envelope(12, contents(PREPARE)[:56]), "short"),
        *((envelope(13, contents), "ends") for contents in (b"", bytes(31), bytes(32))),
        *((envelope(14, contents), "ends") for contents in (b"", b"F02")),
        (changed(REJECT, b"F02", b"F\xe92"), "letters and digits"),
        (changed(REJECT, b"F02", b"F 2"), "letters and digits"),
        (changed(REJECT, b"test.connector", b"test_connector"), "rejecting node"),
        (changed(REJECT, b"test.connector", b"test.connecto\xf2"), "ascii"),
        (changed(REJECT, b"no route", b"no rout\xe9"), "utf-8"),
        (changed(REJECT, b"\x08no route", oer.var_octets(b"a" * (MAX_MESSAGE + 1))), "at most 8191"),
        *(
            (changed(packet, b"\x05hello", oer.var_octets(bytes(MAX_DATA + 1))), "at most 32767")
            for packet in (PREPARE, FULFILL, REJECT)
        ),
    ],
)
def test_packet_with_a_wrong_field_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(CodecError, match=reason):
        decode(data)


def test_prepare_is_no_reply_and_a_reply_no_prepare() -> None:
    with pytest.raises(CodecError, match="neither"):
        decode_reply(encode_packet(PREPARE))
    for packet in (FULFILL, REJECT):
        with pytest.raises(CodecError, match="no Prepare"):
            decode_prepare(encode_packet(packet))


@pytest.mark.parametrize(
    "packet",
    [
        Prepare(2**64 - 1, EARLIEST, bytes(32), f"g.{'a' * 1021}", bytes(MAX_DATA)),
        Prepare(0, LATEST // 1000 * 1000, bytes(32), "g.a"),
        *(Fulfill(bytes(32), bytes(MAX_DATA)), Fulfill(bytes(32))),
        *(Reject("R99", f"g.{'a' * 1021}", "é" * MAX_MESSAGE, bytes(MAX_DATA)), Reject("T00")),
    ],
)
def test_packet_may_be_as_large_and_as_small_as_it_gets(packet: Packet) -> None:
    assert decode(encode_packet(packet)) == packet


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (Prepare(-1, 0, bytes(32), "g.a"), "from 0"),
        (Prepare(2**64, 0, bytes(32), "g.a"), "from 0"),
        (Prepare(0, LATEST + 1, bytes(32), "g.a"), "years"),
        (Prepare(0, EARLIEST - 1, bytes(32), "g.a"), "years"),
        (Prepare(0, 0, bytes(31), "g.a"), "32 bytes"),
        (Prepare(0, 0, bytes(32), ""), "ILP address"),
        (Prepare(0, 0, bytes(32), "g"), "ILP address"),
        (Prepare(0, 0, bytes(32), "g.é"), "ILP address"),
        (Prepare(0, 0, bytes(32), "g.a", bytes(MAX_DATA + 1)), "at most 32767"),
        (Fulfill(bytes(33)), "32 bytes"),
        (Fulfill(bytes(32), bytes(MAX_DATA + 1)), "at most 32767"),
        (Reject("F0"), "letters and digits"),
        (Reject("F0é"), "letters and digits"),
        (Reject("F 0"), "letters and digits"),
        (Reject("T00", "g"), "ILP address"),
        (Reject("T00", "", "a" * (MAX_MESSAGE + 1)), "at most 8191"),
        (Reject("T00", "", "\ud800"), "surrogates"),
        (Reject("T00", data=bytes(MAX_DATA + 1)), "at most 32767"),
    ],
)
def test_packet_that_nobody_could_read_is_not_written(packet: Packet, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        encode_packet(packet)


def test_codes_are_those_of_the_rfc() -> None:
    codes = "F00 F01 F02 F03 F04 F05 F06 F07 F08 F99 T00 T01 T02 T03 T04 T05 T99 R00 R01 R02 R99"
    assert [code.value for code in Code] == codes.split()
    assert decode_reply(encode_packet(Reject(Code.TRANSFER_TIMED_OUT))) == Reject("R00")


def test_too_large_vector(vectors: Vector) -> None:
    vector = vectors["f08Data"]
    amounts = int(vector["receivedAmount"]), int(vector["maximumAmount"])
    data = bytes.fromhex(vector["hex"])
    assert too_large_data(*amounts) == data
    for said in (data, data + b"more"):
        assert Reject(Code.AMOUNT_TOO_LARGE, data=said).too_large == amounts


@given(prepares | replies)
def test_packet_comes_back(packet: Packet) -> None:
    assert decode(encode_packet(packet)) == packet
