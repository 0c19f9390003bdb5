"""The receiving end against the replies of the common receivers, and what it promises for any packet."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.amounts import Asset
from payres.clock import MovableClock
from payres.interledger.credentials import CredentialSource
from payres.interledger.packets import Code, Fulfill, Prepare, Rejected, Reply, decode_prepare, encode
from payres.interledger.receiver import Arrival
from payres.interledger.stream import (
    ConnectionAssetDetails,
    ConnectionNewAddress,
    PacketType,
    SharedSecret,
)
from tests.interledger.node import Sender, sender_to

OLDER = "stream-receiver@0.3.3-alpha.3"  # whose one code for "understood, not fulfilled" every sender understands
NO_TOKEN = {
    "asset probe, dummy segment before the token",
    "token does not decrypt",
    "no token",
    "other address",
}
USD = Asset("USD", 2)
SOURCE = CredentialSource(bytes(range(32)), "test.node")


def receive(vectors: dict[str, Any], prepare: Prepare) -> tuple[Reply, str | None]:
    """The reply with the IV of the vectors, and the tag of what is paid when money moves."""
    address = vectors["receiver"]["serverAddress"]
    source = CredentialSource(bytes.fromhex(vectors["receiver"]["serverSecret"]), address)
    opened = source.open(prepare.destination)
    assert opened is not None
    secret = SharedSecret(bytes.fromhex(vectors["receiver"]["sharedSecret"]), lambda _: bytes.fromhex(vectors["iv"]))
    try:
        reply = Arrival(prepare, prepare.amount, msgspec.structs.replace(opened, shared_secret=secret), address).reply()
    except Rejected as rejected:
        reply = rejected.reject(address)
    return reply, opened.tag if isinstance(reply, Fulfill) and prepare.amount else None


def test_replies_are_those_of_the_common_receiver(vectors: dict[str, Any], receiver_vector: dict[str, Any]) -> None:
    wanted = receiver_vector[OLDER]
    if receiver_vector["name"] in NO_TOKEN:  # nothing to receive with: test_connector.py has the replies
        assert wanted["stream"] is None
        return
    reply, tag = receive(vectors, decode_prepare(bytes.fromhex(receiver_vector["prepare"])))
    assert encode(reply).hex() == wanted["reply"]
    assert (tag is not None) == wanted["money"]
    assert tag == wanted["paymentTag"]


def sender() -> Sender:
    return sender_to(SOURCE.for_payment("payment", USD).ilp_address, SOURCE, MovableClock(10**15, frozen=True))


def arrival(prepare: Prepare) -> Arrival:
    opened = SOURCE.open(prepare.destination)
    assert opened is not None
    return Arrival(prepare, prepare.amount, opened, "test.node")


def test_asset_is_told_to_whoever_introduces_itself_also_when_fulfilled() -> None:
    one = sender()
    for fulfillable in (True, False):
        reply = arrival(one.prepare(0, 0, ConnectionNewAddress(""), fulfillable=fulfillable)).reply()
        assert isinstance(reply, Fulfill) == fulfillable
        assert one.read(reply).frames == (ConnectionAssetDetails("USD", 2),)


@given(
    amount=st.integers(0, 2**64 - 1),
    minimum=st.integers(0, 2**64 - 1),
    fulfillable=st.booleans(),
    kind=st.sampled_from(PacketType),
)
def test_packet_is_fulfilled_only_when_it_can_be_and_is_enough(
    amount: int, minimum: int, fulfillable: bool, kind: PacketType
) -> None:
    one = sender()
    prepare = one.prepare(amount, minimum, fulfillable=fulfillable, kind=kind)
    if kind is not PacketType.PREPARE:
        with pytest.raises(Rejected, match=Code.BAD_REQUEST):
            arrival(prepare)
        return
    reply = arrival(prepare).reply()
    good = fulfillable and amount >= minimum
    assert isinstance(reply, Fulfill) == good
    said = one.read(reply)
    assert (said.sequence, said.prepare_amount) == (one.sequence, amount)
    assert said.packet_type == (PacketType.FULFILL if good else PacketType.REJECT)


@given(st.binary(max_size=200))
def test_data_that_the_sender_did_not_seal_is_unexpected(data: bytes) -> None:
    one = sender()
    with pytest.raises(Rejected, match=Code.UNEXPECTED_PAYMENT):
        arrival(Prepare(5, 10**15, bytes(32), one.address, data))
