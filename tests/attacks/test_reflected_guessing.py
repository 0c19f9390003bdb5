"""Guesses that one server is made to make at another, so that the other takes it for one that guesses."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from payres.core.http import admission
from payres.core.protocol.limits import BURST_SECONDS, FAILED_READS_PART
from payres.testing.peering import peer
from tests.attacks.test_ssrf import QUOTE, ask_for_quote
from tests.instance import Instance, run_instance
from tests.interledger.network import amount, bill, check_books, pay
from tests.signing_client import Client

Pair = Sequence[Instance]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    """Starts two peers, the second of which takes `rate` guesses a second, and the first has so many failed reads."""
    with ExitStack() as stack:

        def pair(rate: int = 0, failed_reads: int = 0) -> Pair:
            rates = (failed_reads * FAILED_READS_PART, rate)
            made = [
                stack.enter_context(
                    run_instance(tmp_path / f"{name}.db", ilp_address=f"test.{name}", rate_limit_unauthenticated=limit)
                )
                for name, limit in zip("ab", rates, strict=True)
            ]
            peer(made[0], made[1])
            return made

        yield pair


def guess(a: Instance, b: Instance, client: Client, token: str) -> httpx2.Response:
    """A quote for an incoming payment that the other server does not have."""
    receiver = f"{b.base_url}/incoming-payments/019e0000-0000-7000-8000-000000000000"
    return ask_for_quote(client, token, a.wallet("bob"), receiver)


def test_reflected_guesses_cut_no_link_of_two_peers(
    start: Any, anonymous: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = start(rate=1)
    pay(a, a.wallet("alice"), bill(b, b.wallet("bob")), debitAmount=amount(100))
    receiver = bill(b, b.wallet("bob"))
    monkeypatch.setattr(admission, "address_of", lambda _: "203.0.113.7")  # where both servers see all requests from
    attacker = a.new_client("attacker")
    token = attacker.grant(QUOTE)
    for _ in range(3 * BURST_SECONDS):
        assert guess(a, b, attacker, token).status_code == 400
        anonymous.get(f"{b.base_url}/nobody")
    assert anonymous.get(b.wallet("bob")).status_code == 429
    paid = pay(a, a.wallet("alice"), receiver, debitAmount=amount(100))
    assert (paid.record.state, paid.record.attempts, paid.record.delivered) == ("completed", 1, 100)
    check_books(a, b)


def test_reflected_guesses_of_one_client_are_few(start: Any) -> None:
    a, b = start(failed_reads=1)
    attacker = a.new_client("attacker")
    token = attacker.grant(QUOTE)
    answers = [guess(a, b, attacker, token) for _ in range(20 * BURST_SECONDS)]
    statuses = Counter(answer.status_code for answer in answers)
    assert statuses.keys() == {400, 429}
    assert answers[0].json()["error"]["details"]["reason"] == "not_found"
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers if answer.status_code == 429)
    assert statuses[429] > statuses[400]
    assert pay(a, a.wallet("alice"), bill(b, b.wallet("bob")), debitAmount=amount(100)).record.delivered == 100
