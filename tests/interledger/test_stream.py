"""Shared secrets: the keys and sealed packets of the vectors, and data that was changed on its way."""

import hmac
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from payres.interledger.oer import CodecError
from payres.interledger.packets import decode_prepare, decode_reply, fulfills
from payres.interledger.stream import (
    PacketType,
    SharedSecret,
    StreamMoney,
    StreamPacket,
    decode_stream_packet,
    decrypt,
    encode_stream_packet,
    encrypt,
)

Vector = dict[str, Any]
Mangle = Callable[[int, int, Sequence[bytes]], Iterator[bytes]]

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
    assert encrypt(cipher, plaintext, iv) == sealed
    assert decrypt(cipher, sealed) == plaintext
    shared_secret = SharedSecret(bytes.fromhex(vectors["streamKeys"]["sharedSecret"]), lambda _: iv)
    assert shared_secret.decrypt_packet(sealed) == packet
    if encode_stream_packet(packet) == plaintext:  # no frame was skipped
        assert shared_secret.encrypt_packet(packet) == sealed


def test_fulfillment_vectors(fulfillment_vector: Vector) -> None:
    secret = SharedSecret(bytes.fromhex(fulfillment_vector["sharedSecret"]))
    data = bytes.fromhex(fulfillment_vector["data"])
    assert secret.fulfillment(data).hex() == fulfillment_vector["fulfillment"]
    assert fulfills(secret.fulfillment(data), bytes.fromhex(fulfillment_vector["condition"]))


def test_receiver_vectors_open_and_seal_again(receiver_vector: Vector, vectors: Vector) -> None:
    iv = bytes.fromhex(vectors["receiver"]["replyIv"])
    secret = SharedSecret(bytes.fromhex(vectors["receiver"]["sharedSecret"]), lambda _: iv)
    prepare = decode_prepare(bytes.fromhex(receiver_vector["prepare"]))
    for version in ("stream-receiver@0.3.3-alpha.3", "stream-receiver@0.3.3-alpha.4"):
        answer = receiver_vector[version]
        reply, expected = decode_reply(bytes.fromhex(answer["reply"])), answer["stream"]
        if expected is None:
            assert reply.data == b""
            continue
        packet = secret.decrypt_packet(reply.data)
        assert (packet.sequence, packet.packet_type) == (int(expected["sequence"]), expected["ilpPacketType"])
        assert packet.prepare_amount == int(expected["prepareAmount"]) == prepare.amount
        assert [type(frame).__name__ for frame in packet.frames] == [frame["name"] for frame in expected["frames"]]
        assert secret.encrypt_packet(packet) == reply.data
        assert secret.decrypt_packet(prepare.data).sequence == packet.sequence


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=300))
def test_sealed_text_comes_back(key: bytes, text: bytes) -> None:
    sealed = encrypt(AESGCM(key), text, bytes(12))
    assert len(sealed) == len(text) + 28
    assert decrypt(AESGCM(key), sealed) == text


@given(st.binary(max_size=3000))
def test_fulfillment_follows_from_the_data(data: bytes) -> None:
    secret = SharedSecret(SECRET)
    assert secret.fulfillment(data) == secret.fulfillment(data), "one packet leaves nothing behind for the next"


def test_no_iv_is_used_twice() -> None:
    secret = SharedSecret(SECRET)
    assert len({secret.encrypt_packet(PACKET)[:12] for _ in range(100)}) == 100


def test_other_secret_neither_opens_nor_fulfills() -> None:
    sealed = SharedSecret(SECRET).encrypt_packet(PACKET)
    other = SharedSecret(SECRET[::-1])
    with pytest.raises(CodecError, match="not encrypted"):
        other.decrypt_packet(sealed)
    assert other.fulfillment(sealed) != SharedSecret(SECRET).fulfillment(sealed)


@pytest.mark.parametrize("size", [0, 1, 12, 27, 28, 29])
def test_data_that_is_not_sealed_is_refused(size: int) -> None:
    with pytest.raises(CodecError):
        SharedSecret(SECRET).decrypt_packet(bytes(size))


def test_sealed_nonsense_is_no_packet() -> None:
    cipher = AESGCM(hmac.digest(SECRET, b"ilp_stream_encryption", "sha256"))
    with pytest.raises(CodecError):
        SharedSecret(SECRET).decrypt_packet(encrypt(cipher, b"nonsense", bytes(12)))


@pytest.mark.parametrize("size", [0, 31, 33])
def test_secret_has_32_bytes(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        SharedSecret(bytes(size))


def test_mangled_data_never_opens(mangle: Mangle) -> None:
    secret = SharedSecret(SECRET)
    sealed = secret.encrypt_packet(PACKET)
    for data in mangle(4, 10_000, [sealed]):
        if data != sealed:
            with pytest.raises(CodecError):
                secret.decrypt_packet(data)
