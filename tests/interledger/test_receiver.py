"""The receiving end against the replies of the common receivers, and what it promises for any packet."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.amounts import Asset
from payres.clock import MovableClock
from payres.interledger.credentials import CredentialSource
from payres.interledger.frames import (
    ConnectionAssetDetails,
    ConnectionClose,
    ConnectionNewAddress,
    PacketType,
)
from payres.interledger.oer import CodecError
from payres.interledger.packets import Code, Fulfill, Prepare, Reject, Reply, decode_prepare, encode
from payres.interledger.receiver import Payable
from payres.interledger.receiver import judge as judged
from payres.interledger.stream import SharedSecret
from tests.interledger.node import Sender

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
    result = judged(prepare, prepare.amount, msgspec.structs.replace(opened, shared_secret=secret), address)
    return (result.fulfill, opened.tag) if isinstance(result, Payable) else (result, None)


def test_replies_are_those_of_the_common_receiver(vectors: dict[str, Any], receiver_vector: dict[str, Any]) -> None:
    wanted = receiver_vector[OLDER]
    if receiver_vector["name"] in NO_TOKEN:  # nothing to receive with: test_connector.py has the replies
        assert wanted["stream"] is None
        return
    reply, tag = receive(vectors, decode_prepare(bytes.fromhex(receiver_vector["prepare"])))
    assert encode(reply).hex() == wanted["reply"]
    assert (tag is not None) == wanted["money"]
    assert tag == wanted["paymentTag"]


def test_every_vector_is_of_a_kind_that_is_tested(vectors: dict[str, Any]) -> None:
    codes = [case[OLDER]["code"] for case in vectors["receiver"]["cases"]]
    assert len(codes) == 17
    assert set(codes) == {"FULFILL", "F00", "F02", "F06", "F99"}


def sender() -> Sender:
    made = SOURCE.for_payment("payment", USD)
    opened = SOURCE.open(made.ilp_address)
    assert opened is not None
    return Sender(made.ilp_address, opened.shared_secret, MovableClock(10**15, frozen=True))


def judge(one: Sender, prepare: Prepare, arrived: int | None = None) -> Payable | Fulfill | Reject:
    opened = SOURCE.open(prepare.destination)
    assert opened is not None
    return judged(prepare, prepare.amount if arrived is None else arrived, opened, "test.node")


def test_minimum_is_held_against_what_arrives_and_not_against_what_was_sent() -> None:
    one = sender()
    prepare = one.prepare(1000, 900)
    taken = judge(one, prepare, 900)
    assert isinstance(taken, Payable)
    assert one.read(taken.fulfill).prepare_amount == 900
    short = judge(one, prepare, 899)
    assert isinstance(short, Reject)
    assert short.code == Code.APPLICATION_ERROR
    assert one.read(short).prepare_amount == 899


def test_declined_money_closes_the_connection_and_says_what_arrived() -> None:
    one = sender()
    taken = judge(one, one.prepare(1000))
    assert isinstance(taken, Payable)
    declined = taken.decline()
    said = one.read(declined)
    assert (declined.code, declined.triggered_by) == (Code.APPLICATION_ERROR, "test.node")
    assert said.frames == (ConnectionClose(),)
    assert (said.packet_type, said.prepare_amount) == (PacketType.REJECT, 1000)


def test_asset_is_told_to_whoever_introduces_itself_also_when_fulfilled() -> None:
    one = sender()
    for fulfillable in (True, False):
        result = judge(one, one.prepare(0, 0, ConnectionNewAddress(""), fulfillable=fulfillable))
        assert isinstance(result, Fulfill) == fulfillable
        assert not isinstance(result, Payable)
        assert one.read(result).frames == (ConnectionAssetDetails("USD", 2),)


def test_ivs_of_answers_differ() -> None:
    one = sender()
    prepare = one.prepare(5)
    answers = [judge(one, prepare) for _ in range(20)]
    assert len({answer.fulfill.data[:12] for answer in answers if isinstance(answer, Payable)}) == 20


@given(
    amount=st.integers(0, 2**64 - 1),
    minimum=st.integers(0, 2**64 - 1),
    fulfillable=st.booleans(),
    kind=st.sampled_from(PacketType),
)
def test_money_is_payable_only_when_it_can_be_fulfilled_and_is_enough(
    amount: int, minimum: int, fulfillable: bool, kind: PacketType
) -> None:
    one = sender()
    prepare = one.prepare(amount, minimum, fulfillable=fulfillable, kind=kind)
    result = judge(one, prepare)
    good = fulfillable and amount >= minimum and kind is PacketType.PREPARE
    assert isinstance(result, Payable) == (good and amount > 0)
    assert isinstance(result, Fulfill) == (good and amount == 0)
    if kind is PacketType.PREPARE:
        reply = result.fulfill if isinstance(result, Payable) else result
        said = one.read(reply)
        assert (said.sequence, said.prepare_amount) == (one.sequence, amount)
        assert said.packet_type == (PacketType.FULFILL if good else PacketType.REJECT)


@given(st.binary(max_size=200))
def test_data_that_the_sender_did_not_seal_is_unexpected(data: bytes) -> None:
    one = sender()
    prepare = Prepare(5, 10**15, bytes(32), one.address, data)
    result = judge(one, prepare)
    assert result == Reject(Code.UNEXPECTED_PAYMENT, "test.node")
    with pytest.raises(CodecError):
        one.read(result)
