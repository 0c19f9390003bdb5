"""Payments from one server to another over a link of their own, and the ledgers of both afterwards."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import SECOND, format_time
from payres.interledger.node import node_of
from payres.interledger.remote_receivers import RemoteIncomingPayment
from payres.operator import assets
from payres.testing.peering import peer
from tests.conftest import Refused
from tests.instance import Instance
from tests.interledger.network import (
    EUR,
    FEW_PACKETS,
    JPY,
    NANO_USD,
    SLOWLY,
    USD,
    Json,
    add_liquidity,
    amount,
    bill,
    change,
    check_books,
    ended,
    hurried,
    let_time_pass,
    network,
    operator_money,
    pay,
    peer_of,
    quote,
    received,
    set_fee,
    set_rate,
    skip_pauses,
    wait_for_packet,
    wallet_money,
)

Pair = Sequence[Instance]
FUNDS = 100_000  # what alice and bob have, in cents


@pytest.fixture
def unlinked(tmp_path: Path) -> Iterator[Pair]:
    """Two servers that are not peers; their ledgers agree at the end of each test."""
    with network(tmp_path, "a", "b") as pair:
        yield pair
        check_books(*pair)


def test_fixed_send_sends_all_and_delivers_more_than_was_promised(pair: Pair) -> None:
    a, b = pair
    receiver = bill(b, b.wallet("bob"))
    paid = pay(a, a.wallet("alice"), receiver, debitAmount=amount(5000))
    assert paid.quote is not None
    assert (paid.quote["debitAmount"], paid.quote["receiveAmount"]) == (amount(5000), amount(4950))
    assert (paid.ended["sentAmount"], paid.ended["failed"]) == (amount(5000), False)
    assert (paid.record.state, paid.record.delivered) == ("completed", 5000)
    assert received(b, receiver).received == 5000
    assert (wallet_money(a, "alice"), wallet_money(b, "bob")) == ((FUNDS - 5000, 0), (FUNDS + 5000, 0))
    assert peer_of(a, "b").balance == 5000


@pytest.mark.parametrize("wanted", [None, 5000], ids=["receiveAmount", "incomingAmount alone"])
def test_fixed_delivery_delivers_exactly_and_gives_the_rest_back(wanted: int | None, pair: Pair) -> None:
    a, b = pair
    receiver = bill(b, b.wallet("bob"), wanted)
    paid = pay(a, a.wallet("alice"), receiver, **({} if wanted else {"receiveAmount": amount(5000)}))
    assert paid.created["debitAmount"] == amount(5051)
    assert paid.created["receiveAmount"] == amount(5000)
    assert (paid.ended["sentAmount"], paid.record.state, paid.record.delivered) == (amount(5000), "completed", 5000)
    shown = httpx2.get(receiver, verify=False).json()  # the public form, by which clients know that it has ended
    assert shown["receivedAmount"] == paid.created["receiveAmount"]
    assert wallet_money(a, "alice") == (FUNDS - 5000, 0)
    payment = received(b, receiver)
    assert (payment.received, payment.completed) == (5000, wanted is not None)


@pytest.mark.parametrize(
    ("limits", "value", "code", "reason"),
    [
        ({"debitAmount": amount(1000)}, 401, "limit_exceeded", "debitAmount"),
        ({"receiveAmount": amount(594)}, 1, "limit_exceeded", "receiveAmount"),
        (None, 1, "limit_exceeded", "receiver"),
        (None, FUNDS, "insufficient_funds", "wallet"),
    ],
)
def test_what_can_never_be_paid_is_refused_before_another_server_is_asked(
    pair: Pair,
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
    limits: Json | None,
    value: int,
    code: str,
    reason: str,
) -> None:
    """600 are spent already; what that was answered with stays under its key."""
    a, b = pair
    receiver, asked = bill(b, b.wallet("bob")), list[str]()
    if reason == "receiver":
        token = spending_token(a, {"receiver": bill(b, b.wallet("bob"))})
    else:
        token = spending_token(a, limits)
        first = pay_directly(a, receiver, 600, token, "paid")
        assert first.status_code == 201, first.text
        ended(a, first.json())

    async def note(url: str, *_: float) -> None:
        asked.append(url)

    monkeypatch.setattr(node_of(a.context).receivers, "fetch_open", note)
    refused(pay_directly(a, receiver, value, token), 403, code, reason=reason)
    if reason != "receiver":
        again = pay_directly(a, receiver, 600, token, "paid")
        assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
    assert not asked


@pytest.mark.parametrize("link_of", ["payer", "receiver"])
@pytest.mark.parametrize(
    ("source", "target", "rate", "debit", "delivered", "wanted", "cost"),
    [
        (USD, EUR, "0.92", 5000, 4600, 4600, 5000),
        (USD, EUR, "0.92", 5001, 4600, 4601, 5002),
        (USD, JPY, "150.5", 5000, 7525, 7525, 5000),
        (USD, JPY, "0.4", 5000, 20, 20, 5000),
        (NANO_USD, USD, None, 50_000_000_000, 5000, 5000, 50_000_000_000),
        (USD, NANO_USD, None, 5000, 50_000_000_000, 50_000_000_000, 5000),
        (EUR, NANO_USD, "1.1", 5000, 55_000_000_000, 55_011_000_000, 5001),
    ],
    ids=["EUR", "EUR, rounded", "JPY", "JPY, much coarser", "fewer decimals", "more decimals", "both"],
)
def test_assets_are_exchanged_on_either_side(
    link_of: str,
    source: Asset,
    target: Asset,
    rate: str | None,
    debit: int,
    delivered: int,
    wanted: int,
    cost: int,
    unlinked: Pair,
) -> None:
    a, b = unlinked
    link = source if link_of == "payer" else target
    peer(a, b, link.code, link.scale, credit_limit="1000000")
    if rate:
        set_rate(source.code, target.code, rate, a, b)
    payer = a.create_wallet("payer", source.code, source.scale, deposit="1000")
    getter = b.create_wallet("getter", target.code, target.scale)
    add_liquidity(b if link_of == "payer" else a, target)
    sending = pay(a, payer, bill(b, getter, asset=target), debitAmount=amount(debit, source))
    assert (sending.record.sent, sending.record.delivered, sending.record.state) == (debit, delivered, "completed")
    delivering = pay(a, payer, bill(b, getter, wanted, target))
    assert delivering.record.state == "completed"
    assert (delivering.record.sent, delivering.record.delivered) == (cost, delivering.record.terms.receive)
    assert wallet_money(a, "payer") == (1000 * 10**source.scale - debit - cost, 0)
    assert wallet_money(b, "getter") == (delivered + wanted, 0)


@pytest.mark.parametrize(
    ("source", "link", "target", "rate", "debit", "promised", "arrives"),
    [
        (EUR, USD, NANO_USD, ("EUR", "USD", "1.1111"), 2, 19_800_000, 20_000_000),
        (USD, USD, USD, None, 2, 2, 2),
        (USD, USD, USD, None, 50, 50, 50),
        (USD, EUR, EUR, ("USD", "EUR", "0.92"), 7, 6, 6),
        (EUR, EUR, NANO_USD, ("EUR", "USD", "1.1111"), 2, 21_999_780, 22_222_000),
        (EUR, EUR, Asset("USD", 6), ("EUR", "USD", "1.08375"), 29, 311_145, 314_287),
        (Asset("EUR", 6), USD, NANO_USD, ("EUR", "USD", "1.08375"), 30_000, 29_700_000, 30_000_000),
        (NANO_USD, USD, NANO_USD, None, 29_999_999, 19_800_000, 20_000_000),
        (NANO_USD, Asset("EUR", 4), Asset("USD", 3), ("EUR", "USD", "1.0837"), 10_090_000, 10, 10),
        (Asset("JPY", 0), EUR, Asset("EUR", 5), ("JPY", "EUR", "0.0061"), 120, 72_270, 73_000),
    ],
    ids=lambda value: f"{value.code}/{value.scale}" if isinstance(value, Asset) else str(value),
)
def test_small_amount_is_promised_as_it_arrives_whichever_unit_is_coarsest(
    source: Asset,
    link: Asset,
    target: Asset,
    rate: tuple[str, str, str] | None,
    debit: int,
    promised: int,
    arrives: int,
    unlinked: Pair,
) -> None:
    """Less the slippage; and the payment is whole."""
    a, b = unlinked
    peer(a, b, link.code, link.scale, credit_limit="1000000")
    if rate:
        set_rate(*rate, a, b)
    payer = a.create_wallet("payer", source.code, source.scale, deposit="1000")
    receiver = bill(b, b.create_wallet("getter", target.code, target.scale), asset=target)
    for server, asset in ((a, link), (b, target)):
        add_liquidity(server, asset)
    quoted = a.client.create_quote(payer, receiver, debitAmount=amount(debit, source))
    paid = ended(a, a.client.create_outgoing_payment(payer, quoted["id"]))
    found = quoted["receiveAmount"], paid.record.delivered, paid.record.state
    assert found == (amount(promised, target), arrives, "completed")


def test_fee_is_charged_on_top_of_what_is_delivered_and_within_what_is_sent(pair: Pair) -> None:
    a, b = pair
    set_fee(a, "0.10", 100)
    delivering = pay(a, a.wallet("alice"), bill(b, b.wallet("bob"), 1000))
    assert (delivering.record.terms.debit, delivering.record.terms.fee) == (1011 + 21, 21)
    assert (delivering.record.sent, delivering.record.delivered) == (1000 + 21, 1000)
    sending = pay(a, a.wallet("alice"), bill(b, b.wallet("bob")), debitAmount=amount(1000))
    assert (sending.record.sent, sending.record.terms.fee, sending.record.delivered) == (1000, 20, 980)


@pytest.mark.parametrize(
    ("source", "link", "target", "rate", "fee", "debits", "least"),
    [
        (USD, USD, USD, None, ("0", 0), (), 1),
        (USD, USD, EUR, "0.92", ("0", 0), (1,), 2),
        (USD, USD, JPY, "150.5", ("0", 0), (), 1),
        (USD, USD, JPY, "0.4", ("0.10", 100), (1, 11, 260, 262), 263),
        (NANO_USD, NANO_USD, USD, None, ("0", 0), (1, 2, 9_999_999), 10_000_000),
        (Asset("USD", 6), USD, NANO_USD, None, ("0", 0), (1, 2, 5000, 9999), 10_000),
    ],
    ids=["USD", "EUR", "JPY", "JPY, much coarser, and a fee", "fewer decimals", "a coarser link"],
)
def test_amount_of_which_nothing_would_arrive_is_refused_with_the_least_as_here(
    source: Asset,
    link: Asset,
    target: Asset,
    rate: str | None,
    fee: tuple[str, int],
    debits: Sequence[int],
    least: int,
    unlinked: Pair,
    refused: Refused,
) -> None:
    a, b = unlinked
    peer(a, b, link.code, link.scale, credit_limit="1000000")
    if rate:
        set_rate(source.code, target.code, rate, a, b)
    payer = a.create_wallet("payer", source.code, source.scale, deposit="1000")
    a.write(lambda tx: assets.set_fee(tx, source.code, source.scale, *fee))
    add_liquidity(a, link)
    add_liquidity(b, target)
    receiver = bill(b, b.create_wallet("getter", target.code, target.scale), asset=target)
    for debit in debits:
        answer = quote(a, receiver, "payer", debitAmount=amount(debit, source))
        refused(answer, 400, "invalid_amount", field="debitAmount", minSendAmount=amount(least, source))
    paid = pay(a, payer, receiver, debitAmount=amount(least, source))
    assert (paid.record.state, paid.record.delivered >= 1) == ("completed", True)


def test_least_amount_is_named_only_if_the_receiver_takes_as_much(unlinked: Pair, refused: Refused) -> None:
    """Beyond the fee, one cent is the least, and buys three yen."""
    a, b = unlinked
    peer(a, b, credit_limit="1000000")
    set_rate("USD", "JPY", "350", a, b)
    set_fee(a, "0.10", 0)
    add_liquidity(b, JPY)
    getter = b.create_wallet("getter", "JPY", 0)
    for wanted, least in ((2, None), (3, amount(11))):
        error = refused(quote(a, bill(b, getter, wanted, JPY), debitAmount=amount(1)), 400, "invalid_amount")
        assert error["details"].get("minSendAmount") == least
        assert ("send at least USD 0.11 " in error["details"]["hint"]) == (least is not None)


@pytest.mark.parametrize("fixed", ["debitAmount", "receiveAmount"])
def test_quote_of_more_than_the_receiver_takes_is_refused(fixed: str, pair: Pair, refused: Refused) -> None:
    a, b = pair
    receiver = bill(b, b.wallet("bob"), 500)
    more, most = ({fixed: amount(value)} for value in (501, 500))
    error = refused(quote(a, receiver, "alice", **more), 400, "invalid_amount")
    assert (error["details"]["remaining"], error["details"]["receiveValue"]) == ("500", "501")
    assert quote(a, receiver, "alice", **most).status_code == 201


def test_grant_with_a_limit_on_what_arrives_delivers_no_more_than_was_promised(pair: Pair, refused: Refused) -> None:
    a, b = pair
    token = spending_token(a, {"receiveAmount": amount(990)})
    receiver = bill(b, b.wallet("bob"))
    created = create(a, token, receiver, debitAmount=amount(1000)).json()
    assert created["receiveAmount"] == amount(990)
    paid = ended(a, created)
    assert (paid.record.state, paid.record.delivered, paid.record.sent) == ("completed", 990, 990)
    refused(create(a, token, receiver, debitAmount=amount(2)), 403, "limit_exceeded", reason="receiveAmount")


@pytest.mark.parametrize("why", ["completed by its owner", "completed by a payment", "expired"])
def test_receiver_that_takes_no_more_between_quote_and_payment_fails_it(why: str, pair: Pair) -> None:
    a, b = pair
    in_a_minute = format_time(b.clock.now() + 60 * SECOND)
    receiver = b.client.create_incoming_payment(b.wallet("bob"), amount(1000), expiresAt=in_a_minute)["id"]
    token = spending_token(a)
    quoted = a.client.create_quote(a.wallet("alice"), receiver)
    assert quoted["expiresAt"] == in_a_minute
    if why == "completed by its owner":
        completer = b.client.grant({"type": "incoming-payment", "actions": ["complete"]})
        assert b.client.post(f"{receiver}/complete", None, completer).status_code == 200
    elif why == "completed by a payment":
        pay(a, a.wallet("alice"), receiver)
    else:
        b.clock.advance(61)  # and the payer's clock is behind
    before = wallet_money(a, "alice")
    created = a.client.post("/outgoing-payments", {"walletAddress": a.wallet("alice"), "quoteId": quoted["id"]}, token)
    paid = ended(a, created.json())
    assert (paid.ended["failed"], paid.ended["sentAmount"]) == (True, amount(0))
    assert why == "expired" or paid.record.failure == "The incoming payment is completed"
    assert wallet_money(a, "alice") == before


@pytest.mark.parametrize(("rate", "fixed"), [("0.25", "receiveAmount"), ("4", "debitAmount")])
def test_amount_beyond_64_bits_is_refused(rate: str, fixed: str, pair: Pair, refused: Refused) -> None:
    a, b = pair
    set_rate("USD", "EUR", rate, a, b)
    receiver = bill(b, b.create_wallet("carla", asset="EUR"))
    most = amount(2**63 - 1, EUR if fixed == "receiveAmount" else USD)
    error = refused(quote(a, receiver, "alice", **{fixed: most}), 400, "invalid_amount")
    assert "too large" in error["details"]["hint"]


@pytest.mark.parametrize(("later", "credit"), [(0, 2000), (86_400, 0)])
def test_credit_that_comes_back_completes_the_payment(later: int, credit: int, pair: Pair) -> None:
    """Also long after its quote has expired."""
    a, b = pair
    hurried(a, idle_timeout=5 * SECOND)
    receiver = bill(b, b.wallet("bob"), 5000)
    quoted = a.client.create_quote(a.wallet("alice"), receiver)
    change(b, "a", credit_limit=credit, max_packet=500)
    created = a.client.create_outgoing_payment(a.wallet("alice"), quoted["id"])
    let_time_pass(pair, later)
    change(b, "a", credit_limit=100_000)
    assert ended(a, created).record.state == "completed"
    assert received(b, receiver).received == 5000


def test_receiver_that_no_peer_leads_to_is_refused_with_what_to_do(unlinked: Pair, refused: Refused) -> None:
    a, b = unlinked
    answer = quote(a, bill(b, b.wallet("bob"), 1000))
    error = refused(answer, 400, "invalid_receiver", field="receiver", reason="no_path")
    assert "F02 from test.a" in error["details"]["hint"]
    assert "no peer with a route to test.b" in error["details"]["hint"]
    refused(pay_directly(a, bill(b, b.wallet("bob")), 100), 400, "invalid_receiver", reason="no_path")


def test_credit_that_is_used_up_ends_the_payment_in_part_and_gives_the_rest_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    set_fee(a, "0.50", 0)
    change(b, "a", credit_limit=2500, max_packet=1000)
    receiver = bill(b, b.wallet("bob"), 5000)
    token = spending_token(a)
    skip_pauses(monkeypatch)
    hurried(a, **FEW_PACKETS)
    paid = ended(a, create(a, token, receiver).json())
    assert paid.ended["failed"]
    assert paid.record.delivered == received(b, receiver).received
    assert 0 < paid.record.delivered <= 2500
    fee = -(-50 * paid.record.delivered // 5051)
    assert paid.ended["sentAmount"] == amount(paid.record.delivered + fee)
    assert wallet_money(a, "alice") == (FUNDS - paid.record.sent, 0)
    spent = a.client.get("/outgoing-payment-grant", token).json()
    assert spent["spentDebitAmount"] == amount(paid.record.sent)
    assert spent["spentReceiveAmount"] == amount(paid.record.delivered)
    assert "T04" in (paid.record.failure or "") or "several attempts" in (paid.record.failure or "")


@pytest.mark.parametrize(
    ("members", "needed"), [({"debitAmount": amount(5000)}, "46.00"), ({"receiveAmount": amount(4600, EUR)}, "46.00")]
)
def test_quote_beyond_the_liquidity_for_the_link_is_refused(
    members: dict[str, Json], needed: str, unlinked: Pair, refused: Refused
) -> None:
    a, b = unlinked
    peer(a, b, "EUR", 2)
    set_rate("USD", "EUR", "0.92", a)
    receiver = bill(b, b.create_wallet("getter", "EUR", 2))
    refused(quote(a, receiver, "alice", **members), 403, "insufficient_funds", reason="liquidity")
    add_liquidity(a, EUR, needed)
    add_liquidity(b, USD)
    assert quote(a, receiver, "alice", **members).status_code == 201
    a.write(lambda tx: assets.withdraw_liquidity(tx, "EUR", 2, "0.01"))
    refused(quote(a, receiver, "alice", **members), 403, "insufficient_funds", reason="liquidity")
    if "debitAmount" in members:  # and so is a payment without a quote
        refused(pay_directly(a, receiver, 5000), 403, "insufficient_funds", reason="liquidity")
        assert wallet_money(a, "alice") == (FUNDS, 0)


@pytest.mark.parametrize("short", ["liquidity of the payer", "liquidity of the receiver", "credit"])
def test_payment_that_runs_short_fails_with_nothing_sent(
    short: str, unlinked: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = unlinked
    link = EUR if short == "liquidity of the payer" else USD
    peer(a, b, link.code, link.scale)
    set_rate("USD", "EUR", "0.92", *unlinked)
    getter = b.create_wallet("getter", "EUR", 2)
    funds = a if short == "liquidity of the payer" else b
    add_liquidity(funds, EUR, "50.00")
    token, receiver = spending_token(a), bill(b, getter, 4600, EUR)
    quoted = a.client.create_quote(a.wallet("alice"), receiver)
    if short == "credit":
        change(b, "a", credit_limit=0)
    else:
        funds.write(lambda tx: assets.withdraw_liquidity(tx, "EUR", 2, "40.00"))
    skip_pauses(monkeypatch)
    hurried(a, **FEW_PACKETS)
    created = a.client.post("/outgoing-payments", {"walletAddress": a.wallet("alice"), "quoteId": quoted["id"]}, token)
    paid = ended(a, created.json())
    assert (paid.ended["failed"], paid.ended["sentAmount"]) == (True, amount(0))
    assert "T04" in (paid.record.failure or "")
    spent = a.client.get("/outgoing-payment-grant", token).json()
    assert (spent["spentDebitAmount"], spent["spentReceiveAmount"]) == (None, None)
    assert wallet_money(a, "alice") == (FUNDS, 0)


@pytest.mark.parametrize(("rate", "delivered"), [("0.90", 0), ("0.915", 4600)], ids=["too far", "within the slippage"])
def test_rate_that_falls_fails_the_payment_or_costs_the_payer_a_little_more(
    rate: str, delivered: int, unlinked: Pair
) -> None:
    a, b = unlinked
    peer(a, b)
    add_liquidity(b, EUR)
    set_rate("USD", "EUR", "0.92", *unlinked)
    receiver = bill(b, b.create_wallet("getter", "EUR", 2), 4600, EUR)
    quoted = a.client.create_quote(a.wallet("alice"), receiver)
    set_rate("USD", "EUR", rate, b)
    paid = ended(a, a.client.create_outgoing_payment(a.wallet("alice"), quoted["id"]))
    assert (paid.ended["failed"], paid.record.delivered) == (not delivered, delivered)
    assert received(b, receiver).received == delivered
    assert 5027 <= paid.record.sent <= paid.record.terms.debit if delivered else paid.record.sent == 0


@pytest.mark.parametrize("max_packet", [None, 100])
def test_delivery_takes_what_it_needs_after_the_rate_has_risen(max_packet: int | None, unlinked: Pair) -> None:
    a, b = unlinked
    peer(a, b, max_packet=max_packet)
    add_liquidity(b, EUR)
    set_rate("USD", "EUR", "0.9", *unlinked)
    set_fee(a, "0.10", 0)
    receiver = bill(b, b.create_wallet("getter", "EUR", 2), 450, EUR)
    token = spending_token(a, {"debitAmount": amount(1000)})
    quoted = a.client.create_quote(a.wallet("alice"), receiver)
    set_rate("USD", "EUR", "1.08", b)
    body = {"walletAddress": a.wallet("alice"), "quoteId": quoted["id"]}
    paid = ended(a, a.client.post("/outgoing-payments", body, token).json())
    assert (paid.created["debitAmount"], paid.record.delivered) == (amount(516), 450)
    assert received(b, receiver).received == 450
    taken = 427  # with the fee
    assert (paid.ended["sentAmount"], paid.ended["failed"]) == (amount(taken), False)
    spent = a.client.get("/outgoing-payment-grant", token).json()
    assert (spent["spentDebitAmount"], spent["spentReceiveAmount"]) == (amount(taken), amount(450, EUR))
    assert wallet_money(a, "alice") == (FUNDS - taken, 0)


@pytest.mark.parametrize("amounts", [{"debitAmount": amount(2000)}, {"receiveAmount": amount(2000)}])
@pytest.mark.parametrize("limited", ["before the quote", "after it"])
def test_payment_in_many_packets_arrives_whole(amounts: dict[str, Json], limited: str, pair: Pair) -> None:
    a, b = pair
    receiver = bill(b, b.wallet("bob"))
    if limited == "before the quote":
        change(b, "a", max_packet=100)
    quoted = a.client.create_quote(a.wallet("alice"), receiver, **amounts)
    change(b, "a", max_packet=100)
    paid = ended(a, a.client.create_outgoing_payment(a.wallet("alice"), quoted["id"]))
    assert (paid.record.state, paid.record.sent, paid.record.delivered) == ("completed", 2000, 2000)
    assert peer_of(a, "b").packets_sent >= 20
    assert received(b, receiver).received == 2000


def test_payments_at_once_to_one_receiver_never_pass_what_it_wants(pair: Pair) -> None:
    a, b = pair
    change(b, "a", max_packet=250)
    receiver = bill(b, b.wallet("bob"), 1000)
    token = spending_token(a)
    wallet = a.wallet("alice")
    quotes = [a.client.create_quote(wallet, receiver)["id"] for _ in range(20)]
    with ThreadPoolExecutor(5) as threads:
        bodies = [{"walletAddress": wallet, "quoteId": quote_id} for quote_id in quotes]
        answers = list(threads.map(lambda body: a.client.post("/outgoing-payments", body, token), bodies))
    assert {answer.status_code for answer in answers} == {201}
    payments = [ended(a, answer.json()) for answer in answers]
    total = received(b, receiver).received
    assert 1000 <= total <= 1005
    assert sum(payment.record.delivered for payment in payments) == total
    assert wallet_money(a, "alice") == (FUNDS - sum(payment.record.sent for payment in payments), 0)
    for payment in payments:
        assert payment.ended["failed"] == (payment.record.delivered < 1000)


def test_copies_of_a_request_under_one_key_pay_another_server_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair
    receiver, token = bill(b, b.wallet("bob")), spending_token(a)
    asked, fetch_open = list[str](), node_of(a.context).receivers.fetch_open

    async def note(url: str, *seconds: float) -> RemoteIncomingPayment:
        asked.append(url)
        return await fetch_open(url, *seconds)

    monkeypatch.setattr(node_of(a.context).receivers, "fetch_open", note)
    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(lambda _: pay_directly(a, receiver, 1000, token, "once"), range(20)))
    assert {(answer.status_code, answer.content) for answer in answers} == {(201, answers[0].content)}
    assert ended(a, answers[0].json()).record.state == "completed"
    assert received(b, receiver).received == 1000
    assert wallet_money(a, "alice") == (FUNDS - 1000, 0)
    assert len(asked) <= 2, "once for the offer and once for the payment"


def spending_token(instance: Instance, limits: Json | None = None) -> str:
    """A token that permits quotes and payments from alice's wallet."""
    wallet = instance.wallet("alice")
    return instance.client.grant(
        {"type": "quote", "actions": ["create"], "identifier": wallet},
        {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": wallet}
        | ({"limits": limits} if limits else {}),
    )


def create(instance: Instance, token: str, receiver: str, **amounts: Json) -> Any:
    """The answer to an outgoing payment from alice's wallet, quoted first."""
    wallet = instance.wallet("alice")
    quoted = instance.client.create_quote(wallet, receiver, **amounts)
    return instance.client.post("/outgoing-payments", {"walletAddress": wallet, "quoteId": quoted["id"]}, token)


def pay_directly(instance: Instance, receiver: str, value: int, token: str = "", key: str = "") -> Any:
    """The answer to an outgoing payment without a quote."""
    body = {"walletAddress": instance.wallet("alice"), "incomingPayment": receiver, "debitAmount": amount(value)}
    headers = {"idempotency-key": f'"{key}"'} if key else {}
    token = token or spending_token(instance)
    return instance.client.request("POST", "/outgoing-payments", body, token, headers)


# Across a server in the middle, which exchanges payments and owes and is owed on both sides


Row = Sequence[Instance]


@pytest.fixture
def row(tmp_path: Path) -> Iterator[Row]:
    """`a` keeps US dollars and `c` yen. `a` and `b` have a link in dollars, `b` and `c` one in euros."""
    with network(tmp_path, "a", "b", "c") as row:
        a, b, c = row
        peer(a, b, "USD", 2, routes=["test.c"])
        peer(c, b, "EUR", 2, routes=["test.a"])
        a.create_wallet("payer", "USD", 2, deposit="1000.00")
        c.create_wallet("getter", "JPY", 0, deposit="100000")
        set_rate("USD", "EUR", "0.92", *row)
        set_rate("EUR", "JPY", "160", *row)
        set_rate("USD", "JPY", "147.2", *row)
        for asset in (USD, EUR):
            add_liquidity(b, asset)
        for asset in (EUR, JPY):
            add_liquidity(c, asset)
        yield row
        check_books(*row)


def test_payment_crosses_three_currencies(row: Row) -> None:
    a, b, c = row
    receiver = bill(c, c.wallet("getter"), 1472, JPY)
    paid = pay(a, a.wallet("payer"), receiver)
    assert (paid.record.state, paid.record.sent, paid.record.delivered) == ("completed", 1000, 1472)
    assert received(c, receiver).received == 1472
    assert wallet_money(a, "payer") == (99_000, 0)
    assert (peer_of(b, "a").balance, peer_of(b, "c").balance) == (-1000, 920)
    assert operator_money(b, USD) == 100_000_000 + 1000
    assert operator_money(b, EUR) == 100_000_000 - 920
    assert operator_money(c, EUR) == 100_000_000 + 920
    assert operator_money(c, JPY) == 1_000_000 - 1472
    assert peer_of(a, "b").repeats_answers, "payres knows another payres by its answers"


def test_route_that_ends_in_the_middle_of_a_payment_fails_it_in_part(row: Row) -> None:
    a, b, c = row
    change(b, "a", max_packet=100)
    hurried(a, largest_round=1, **SLOWLY)
    receiver = bill(c, c.wallet("getter"), 29_440, JPY)
    quoted = a.client.create_quote(a.wallet("payer"), receiver)
    created = a.client.create_outgoing_payment(a.wallet("payer"), quoted["id"])
    wait_for_packet(b, "c")
    change(b, "c", remove_routes=["test.c"])
    paid = ended(a, created)
    assert paid.ended["failed"]
    assert "F02 from test.b" in (paid.record.failure or "")
    assert 0 < paid.record.sent < paid.record.terms.debit
    assert paid.record.delivered == received(c, receiver).received
    assert wallet_money(a, "payer") == (100_000 - paid.record.sent, 0)
