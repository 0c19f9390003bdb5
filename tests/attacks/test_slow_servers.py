"""Servers that take connections and never answer: whoever names them takes no place that others need."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from payres.core.protocol.limits import MAX_EXCHANGES, MAX_EXCHANGES_OF_KEY
from tests.attacks.conftest import Trap
from tests.attacks.test_ssrf import QUOTE, ask_for_quote
from tests.helpers import TIMEOUT, client_with_key, wait_until
from tests.instance import Instance
from tests.interledger.network import amount, bill, ended


def test_slow_servers_named_in_quotes_fail_no_payment_and_no_quote_of_others(pair: Sequence[Instance]) -> None:
    a, b = pair
    first, second = bill(b, b.wallet("bob")), bill(b, b.wallet("bob"))
    quote = a.client.create_quote(a.wallet("alice"), first, debitAmount=amount(100))
    with (
        closing(Trap()) as silent,
        closing(client_with_key(a)) as attacker,
        closing(client_with_key(a)) as other,
        ThreadPoolExecutor(2 * MAX_EXCHANGES) as attackers,
    ):
        token = attacker.grant(QUOTE)
        receivers = [f"{silent.origin(number)}/incoming-payments/1" for number in range(MAX_EXCHANGES + 16)]
        answers = [attackers.submit(ask_for_quote, attacker, token, a.wallet("bob"), one) for one in receivers]
        wait_until(lambda: len(silent.taken) >= MAX_EXCHANGES_OF_KEY)
        paid = ended(a, a.client.create_outgoing_payment(a.wallet("alice"), quote["id"]))
        assert (paid.record.state, paid.record.attempts, paid.record.delivered) == ("completed", 1, 100)
        assert a.client.create_quote(a.wallet("alice"), second, debitAmount=amount(100))["receiver"] == second
        assert ask_for_quote(other, other.grant(QUOTE), a.wallet("alice"), second).status_code == 201
        assert len(silent.taken) == MAX_EXCHANGES_OF_KEY
        silent.close()
        found = [answer.result(TIMEOUT) for answer in answers]
    assert {answer.status_code for answer in found} == {400, 503}
    assert all(int(answer.headers["retry-after"]) > 0 for answer in found if answer.status_code == 503)
