import pytest

from payres.core.payments.incoming import fits, open_receiver
from payres.core.protocol.errors import InvalidReceiver
from payres.core.store.incoming_payments import IncomingRecord
from payres.core.store.work import Work
from payres.interledger.overpayment import fits_with_tolerance


def wanting(value: int | None, received: int) -> IncomingRecord:
    text = None if value is None else str(value)
    return IncomingRecord("1", 1, 1, text, received, None, created_at=0, expires_at=1, completed_at=None)


# The most that still fits a payment that wants `value` and has received so much: of a local payment, and of a packet.
@pytest.mark.parametrize(
    ("value", "received", "local", "packet"),
    [
        (1, 0, 1, 2),
        (100, 0, 100, 101),
        (100, 60, 40, 41),
        (399, 0, 399, 400),
        (400, 0, 400, 402),
        (599, 0, 599, 601),
        (1000, 999, 1, 6),
        (10**19, 0, 10**19, 10**19 + 5 * 10**16),
    ],
)
def test_only_packets_may_exceed_what_is_wanted(value: int, received: int, local: int, packet: int) -> None:
    payment = wanting(value, received)
    assert [fits(payment.remaining, amount) for amount in (local, local + 1)] == [True, False]
    assert [fits_with_tolerance(payment, amount, amount) for amount in (packet, packet + 1)] == [True, False]


@pytest.mark.parametrize(("minimum", "taken"), [(0, False), (1, False), (29, False), (30, True), (31, False)])
def test_packet_of_large_units_may_exceed_what_is_wanted_if_it_asks_for_just_that(minimum: int, taken: bool) -> None:
    """As the last one of a sender whose smallest unit is worth 46 of the receiver's."""
    assert fits_with_tolerance(wanting(100, 70), 46, minimum) is taken
    assert not fits_with_tolerance(wanting(100, 100), 46, 0)


def test_everything_fits_what_names_no_amount() -> None:
    payment = wanting(None, 5)
    assert fits(payment.remaining, 2**63)
    assert fits_with_tolerance(payment, 2**63, 0)


@pytest.mark.parametrize(
    ("url", "why", "reason"),
    [
        ("bob", "it must be the URL of an incoming payment", None),
        ("https://elsewhere.example/bob", "it must be the URL of an incoming payment", None),
        ("https://elsewhere.example/incoming-payments/1", "it is not an incoming payment of this server", "not_found"),
        ("{base}/incoming-payments/1", "there is no such incoming payment", "not_found"),
    ],
)
def test_receiver_that_is_not_here_is_refused_with_the_reason(tx: Work, url: str, why: str, reason: str | None) -> None:
    with pytest.raises(InvalidReceiver, match=f"^receiver cannot be paid: {why}$") as caught:
        open_receiver(tx, url.format(base=tx.urls.base), "receiver")
    assert caught.value.details.get("reason") == reason
