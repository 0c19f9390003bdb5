"""STREAM packets: vectors and the fixtures of ilp-protocol-stream byte for byte, frames both ways, wrong packets; and
shared secrets: their keys, sealed packets, and data that was changed on its way.
"""

import base64
import hmac
from collections.abc import Sequence
from typing import Any, get_args

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from payres.core.protocol.amounts import MAX_VALUE
from payres.interledger import oer, stream
from payres.interledger.oer import CodecError, decode_prepare, decode_reply, encode_packet
from payres.interledger.packets import Fulfill, Reject
from payres.interledger.stream import (
    ConnectionAssetDetails,
    ConnectionClose,
    ConnectionMaxData,
    Frame,
    PacketType,
    SharedSecret,
    StreamMaxMoney,
    StreamMoney,
    StreamPacket,
    decode_stream_packet,
    decrypt_gcm,
    encode_stream_packet,
    encrypt_gcm,
)

Vector = dict[str, Any]

NAMES = {
    "errorCode": "code",
    "errorMessage": "message",
    "sourceAccount": "address",
    "sourceAssetCode": "code",
    "sourceAssetScale": "scale",
    "maxOffset": "max_offset",
    "maxStreamId": "max_stream_id",
    "streamId": "stream_id",
    "receiveMax": "receive_max",
    "totalReceived": "total_received",
}
TEXTS = {"errorMessage", "sourceAccount", "sourceAssetCode"}
HEADER = bytes.fromhex("010c01000100")  # version 1, in a Prepare, sequence 0, amount 0; what follows is the count


def frames_of(fields: Sequence[Vector]) -> tuple[Frame, ...]:
    """The frames of a vector that are read; all others are skipped."""
    known = [frame for frame in fields if hasattr(stream, frame["name"])]
    return tuple(getattr(stream, frame["name"])(**named(frame)) for frame in known)


def named(frame: Vector) -> Vector:
    values = {name: value for name, value in frame.items() if name not in ("type", "name")}
    return {NAMES.get(name, name): value if name in TEXTS else int(value) for name, value in values.items()}


def packet_with(*written: Frame) -> StreamPacket:
    return StreamPacket(0, PacketType.PREPARE, 0, written)


def check(data: bytes, packet: StreamPacket, written: Sequence[Vector], *, encodes: bool = True) -> None:
    """The data is the packet, and the packet, unless frames were skipped, is written as this data."""
    assert decode_stream_packet(data) == packet
    if encodes and len(packet.frames) == len(written):
        assert encode_stream_packet(packet) == data


def test_frame_vectors(frame_vector: Vector) -> None:
    written = [frame_vector["fields"]]
    data = HEADER + oer.var_uint(1) + bytes.fromhex(frame_vector["hex"])
    check(data, packet_with(*frames_of(written)), written)


def test_vectors_have_every_frame(vectors: Vector) -> None:
    assert set(map(type, frames_of([vector["fields"] for vector in vectors["frames"]]))) == set(get_args(Frame))


def test_stream_packet_vectors(stream_vector: Vector) -> None:
    sequence, amount = int(stream_vector["sequence"]), int(stream_vector["prepareAmount"])
    written = stream_vector["frames"]
    packet = StreamPacket(sequence, stream_vector["ilpPacketType"], amount, frames_of(written))
    check(bytes.fromhex(stream_vector["plaintext"]), packet, written)


def test_fixtures(fixture_vector: Vector) -> None:
    fields = fixture_vector["packet"]
    packet = StreamPacket(
        int(fields["sequence"]), fields["packetType"], int(fields["amount"]), frames_of(fields["frames"])
    )
    encodes = not fixture_vector.get("decode_only")
    check(base64.b64decode(fixture_vector["buffer"]), packet, fields["frames"], encodes=encodes)


def test_unknown_frames_and_padding_are_ignored(vectors: Vector) -> None:
    vector = vectors["streamUnknownFrame"]
    packet = decode_stream_packet(bytes.fromhex(vector["plaintext"]))
    assert packet == StreamPacket(7, PacketType.PREPARE, int(vector["prepareAmount"]), (StreamMoney(1, 1),))
    assert [type(frame).__name__ for frame in packet.frames] == vector["parsedFrames"]


def test_bytes_after_the_fields_of_a_frame_are_ignored() -> None:
    data = HEADER + bytes.fromhex("0101" + "1106" + "01010101" + "ffff")
    assert decode_stream_packet(data) == packet_with(StreamMoney(1, 1))


def test_limit_above_eight_bytes_is_the_largest_number() -> None:
    contents = oer.var_uint(1) + oer.var_octets(b"\x01" + bytes(8)) + oer.var_uint(5)
    data = HEADER + oer.var_uint(1) + oer.uint8(0x12) + oer.var_octets(contents)
    assert decode_stream_packet(data) == packet_with(StreamMaxMoney(1, MAX_VALUE, 5))


@pytest.mark.parametrize(
    ("number", "fields"),
    [
        (0x11, oer.var_octets(b"\x01" + bytes(8)) + oer.var_uint(1)),
        (0x12, oer.var_uint(1) + oer.var_uint(1) + oer.var_octets(b"\x01" + bytes(8))),
        (0x03, oer.var_octets(b"\x01" + bytes(8))),
        (0x03, b""),
        (0x03, b"\x00"),
        (0x01, b"\x01"),
        (0x01, b"\x01\x01\xff"),
        (0x07, b"\x03USD"),
    ],
)
def test_known_frame_with_a_wrong_field_is_refused(number: int, fields: bytes) -> None:
    with pytest.raises(CodecError):
        decode_stream_packet(HEADER + oer.var_uint(1) + oer.uint8(number) + oer.var_octets(fields))


def test_fields_end_where_their_frame_ends() -> None:
    """The second frame must never be taken for the missing field of the first."""
    with pytest.raises(CodecError):
        decode_stream_packet(HEADER + bytes.fromhex("0102" + "11020101" + "03020105"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00" + encode_stream_packet(packet_with())[1:],
        b"\x02" + encode_stream_packet(packet_with())[1:],
        HEADER,
        HEADER[:3],
        HEADER + b"\x01\x01",
        HEADER + oer.var_uint(MAX_VALUE) + encode_stream_packet(packet_with(StreamMoney(1, 1)))[8:],
    ],
)
def test_other_versions_and_packets_that_end_early_are_refused(data: bytes) -> None:
    with pytest.raises(CodecError):
        decode_stream_packet(data)


def test_packet_type_is_left_to_the_receiver() -> None:
    assert decode_stream_packet(b"\x01\x63" + encode_stream_packet(packet_with())[2:]).packet_type == 99


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (StreamPacket(-1, 12, 0), "from 0"),
        (StreamPacket(2**64, 12, 0), "from 0"),
        (StreamPacket(0, 256, 0), "range"),
        (StreamPacket(0, 12, 2**64), "from 0"),
        (packet_with(ConnectionClose(256, "")), "range"),
        (packet_with(ConnectionClose(1, "\ud800")), "surrogates"),
        (packet_with(ConnectionMaxData(2**64)), "from 0"),
        (packet_with(ConnectionAssetDetails("USD", -1)), "range"),
    ],
)
def test_packet_that_nobody_could_read_is_not_written(packet: StreamPacket, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        encode_stream_packet(packet)


numbers = st.integers(0, MAX_VALUE)
bytes_of_one = st.integers(0, 255)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "code": bytes_of_one,
    "scale": bytes_of_one,
    "message": st.text(max_size=100),
    "address": st.text(max_size=100),
}


def frames_like(kind: type[Frame]) -> st.SearchStrategy[Frame]:
    if kind is ConnectionAssetDetails:
        return st.builds(ConnectionAssetDetails, code=st.text(max_size=10), scale=bytes_of_one)
    return st.builds(kind, **{name: FIELDS.get(name, numbers) for name in kind.__struct_fields__})


@given(
    st.builds(
        StreamPacket,
        sequence=numbers,
        packet_type=st.sampled_from(PacketType),
        prepare_amount=numbers,
        frames=st.lists(st.one_of(*(frames_like(kind) for kind in get_args(Frame))), max_size=5).map(tuple),
    ),
    st.binary(max_size=20),
)
def test_stream_packet_comes_back_whatever_follows_it(packet: StreamPacket, padding: bytes) -> None:
    assert decode_stream_packet(encode_stream_packet(packet) + padding) == packet


SECRET = bytes(range(32))
PACKET = StreamPacket(7, PacketType.PREPARE, 990, (StreamMoney(1, 1),))


@pytest.fixture
def shared_secret(vectors: Vector) -> SharedSecret:
    return SharedSecret(bytes.fromhex(vectors["streamKeys"]["sharedSecret"]))


def test_keys_are_those_of_the_vectors(shared_secret: SharedSecret, vectors: Vector) -> None:
    keys, iv = vectors["streamKeys"], bytes.fromhex(vectors["iv"])
    sealed = SharedSecret(bytes.fromhex(keys["sharedSecret"]), lambda _: iv).encrypt_packet(PACKET)
    cipher = AESGCM(bytes.fromhex(keys["encryptionKey"]))
    assert cipher.decrypt(sealed[:12], sealed[28:] + sealed[12:28], None) == encode_stream_packet(PACKET)
    expected = hmac.digest(bytes.fromhex(keys["fulfillmentKey"]), b"some data", "sha256")
    assert shared_secret.fulfillment(b"some data") == expected


def test_sealed_vectors(vectors: Vector, stream_vector: Vector) -> None:
    plaintext, sealed = bytes.fromhex(stream_vector["plaintext"]), bytes.fromhex(stream_vector["encrypted"])
    iv, packet = bytes.fromhex(stream_vector["iv"]), decode_stream_packet(plaintext)
    cipher = AESGCM(bytes.fromhex(vectors["streamKeys"]["encryptionKey"]))
    assert encrypt_gcm(cipher, plaintext, iv) == sealed
    assert decrypt_gcm(cipher, sealed) == plaintext
    shared_secret = SharedSecret(bytes.fromhex(vectors["streamKeys"]["sharedSecret"]), lambda _: iv)
    assert shared_secret.decrypt_packet(sealed) == packet
    if encode_stream_packet(packet) == plaintext:  # no frame was skipped
        assert shared_secret.encrypt_packet(packet) == sealed


def test_fulfillment_vectors(fulfillment_vector: Vector) -> None:
    secret = SharedSecret(bytes.fromhex(fulfillment_vector["sharedSecret"]))
    data = bytes.fromhex(fulfillment_vector["data"])
    assert secret.fulfillment(data).hex() == fulfillment_vector["fulfillment"]
    assert Fulfill(secret.fulfillment(data)).fits(bytes.fromhex(fulfillment_vector["condition"]))


def test_receiver_vectors_open_and_seal_again(receiver_vector: Vector, vectors: Vector) -> None:
    iv = bytes.fromhex(vectors["receiver"]["replyIv"])
    secret = SharedSecret(bytes.fromhex(vectors["receiver"]["sharedSecret"]), lambda _: iv)
    prepare = decode_prepare(bytes.fromhex(receiver_vector["prepare"]))
    for version in ("stream-receiver@0.3.3-alpha.3", "stream-receiver@0.3.3-alpha.4"):
        answer = receiver_vector[version]
        reply, expected = decode_reply(bytes.fromhex(answer["reply"])), answer["stream"]
        assert encode_packet(reply).hex() == answer["reply"]
        assert answer["code"] == (reply.code if isinstance(reply, Reject) else "FULFILL")
        if expected is None:
            assert reply.data == b""
            continue
        packet = secret.decrypt_packet(reply.data)
        assert (packet.sequence, packet.packet_type) == (int(expected["sequence"]), expected["ilpPacketType"])
        assert packet.prepare_amount == int(expected["prepareAmount"]) == prepare.amount
        assert [type(frame).__name__ for frame in packet.frames] == [frame["name"] for frame in expected["frames"]]
        assert secret.encrypt_packet(packet) == reply.data
        assert secret.decrypt_packet(prepare.data).sequence == packet.sequence


def test_no_iv_is_used_twice() -> None:
    secret = SharedSecret(SECRET)
    assert len({secret.encrypt_packet(PACKET)[:12] for _ in range(100)}) == 100


@pytest.mark.parametrize("size", [0, 31, 33])
def test_secret_has_32_bytes(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        SharedSecret(bytes(size))
