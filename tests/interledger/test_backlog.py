from payres.interledger.recovery import ASKED_AT_ONCE, ASKED_AT_ONCE_OF_ONE, Backlog, Waiting


def waiting(number: int, due: int = 0, to_peer: int = 1, from_peer: int = 2) -> Waiting:
    return Waiting(due, f"{number:04}", 1, to_peer, from_peer)


def test_what_is_due_comes_in_order_and_once() -> None:
    backlog = Backlog()
    for number, due in enumerate((30, 10, 20, 40)):
        backlog.add(waiting(number, due))
    assert [packet.due for packet in backlog.take_due(9)] == []
    assert [packet.due for packet in backlog.take_due(30)] == [10, 20, 30]
    assert [packet.due for packet in backlog.take_due(30)] == []
    assert backlog
    assert [packet.due for packet in backlog.take_due(40)] == [40]
    assert not backlog


def test_slots_of_each_pair_of_peers_are_limited() -> None:
    backlog = Backlog()
    for number in range(1000):
        backlog.add(waiting(number))
    taken = list(backlog.take_due(0))
    assert len(taken) == ASKED_AT_ONCE_OF_ONE
    for from_peer in (3, 4):
        for number in range(ASKED_AT_ONCE_OF_ONE):
            backlog.add(waiting(number, from_peer=from_peer))
    backlog.add(waiting(1, to_peer=5))
    others = list(backlog.take_due(0))
    assert [packet.from_peer_id for packet in others if packet.to_peer_id == 1] == [3] * (
        ASKED_AT_ONCE - ASKED_AT_ONCE_OF_ONE
    )
    assert len(others) == ASKED_AT_ONCE - ASKED_AT_ONCE_OF_ONE + 1
    backlog.release(taken[0])
    assert len(list(backlog.take_due(0))) == 1
