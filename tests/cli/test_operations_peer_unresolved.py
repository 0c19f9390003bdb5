"""Unresolved packets, as the operator sees and resolves them."""

from fractions import Fraction

import msgspec
import pytest

from payres.core.payments import ledger
from payres.core.protocol.amounts import Asset, Terms
from payres.core.protocol.amounts import ProbedPath as Way
from payres.core.store import clients, grants
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.grants import GRANTS, GrantRecord
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.interledger import clearing
from payres.interledger.clearing import end_remote
from payres.interledger.store.packets import PACKETS, PacketRecord
from payres.operator import assets, peers, wallets
from payres.operator.unresolved_packets import SENT as TO_COMPARE
from tests.cli.conftest import AsJson, Command, rows_of
from tests.works import add_usd_peer, sending_payment

GRANT, PAYMENT = "grant", "0198c2f0-5d1e-7c53-9a57-000000000000"
UNKNOWN = [f"0198c2f0-5d1e-7c53-9a57-00000000000{number}" for number in (1, 2)]
EXPIRY = 1_700_000_000_000_000
DEBIT, FEE, SENT, UNRESOLVED = 1000, 20, 400, 150
RATE = Fraction(9, 10)  # what the receiver gets for each unit of the payer


@pytest.fixture(params=["USD", "EUR"])
def given_up(request: pytest.FixtureRequest, tx: Work) -> str:
    """The asset of the link, with packets worth the same or half."""
    code = str(request.param)
    give_up(tx, code, "alice")
    return code


def give_up(tx: Work, code: str, path: str) -> None:
    """Makes a payment of 10.00 USD that ended with 4.00 delivered and two unresolved packets of 1.50."""
    wallet = wallets.create_wallet(tx, path, "USD", 2, None, None)
    wallets.deposit(tx, path, "100.00")
    assets.deposit_liquidity(tx, "EUR", 2, "100.00")
    peer = add_usd_peer(tx, "bank", asset_code=code, url="http://127.0.0.1:9/")
    client = clients.ensure_client(tx, "https://shop.example", "https://shop.example", None, 1)
    GRANTS.insert(tx, GrantRecord(GRANT, client.id, None, "issued", "[]", None, wallet.id, b"", 1, 1, None))
    terms = Terms(
        receiver="https://elsewhere.example/incoming-payments/1",
        incoming_payment_id=None,
        debit=DEBIT,
        fee=FEE,
        receive=800,
        asset=Asset("GBP", 2),
        path=Way(RATE, RATE + Fraction(1, 1000), 1000),
    )
    OUTGOING.insert(tx, sending_payment(PAYMENT, wallet.id, client.id, 1, terms, GRANT))
    ledger.hold(tx, wallet.account_id, DEBIT, outgoing_payment_id=PAYMENT)
    grants.add_spending(tx, GRANT, 0, Asset("GBP", 2), DEBIT, 800, 1)
    for packet_id, amount in (("sent", SENT), *((one, UNRESOLVED) for one in UNKNOWN)):
        there = amount if code == "USD" else amount // 2
        packet = PacketRecord(packet_id, peer.id, PAYMENT, None, None, amount, there, b"prepare", EXPIRY, "prepared")
        clearing.prepare(tx, packet, peer)
        if packet_id == "sent":
            clearing.fulfil(tx, packet_id, 360)
        else:
            clearing.leave_unresolved(tx, packet)
    payment = OUTGOING.get(tx, PAYMENT)
    assert payment is not None
    end_remote(tx, payment, "nobody knows")


def spent(tx: Work) -> list[tuple[int, ...]]:
    return [(one.debit, one.receive) for one in grants.spending(tx, GRANT, 0)]


def liquidity(tx: Work, code: str) -> int:
    asset = assets.require_asset(tx, code, 2)
    return ACCOUNTS.by_id(tx, ledger.operator_account(tx, asset.id, "liquidity")).balance


def test_payer_pays_for_what_arrived_and_the_grant_counts_what_may_have(tx: Work, given_up: str) -> None:
    payment = OUTGOING.get(tx, PAYMENT)
    assert payment is not None
    assert (payment.state, payment.sent, payment.delivered) == ("failed", SENT + 9, 360)  # and its share of the fee
    assert require_wallet(tx, "alice").id == payment.wallet_address_id
    # 150 units deliver 135 at the probed rate, and less than 136.
    assert spent(tx) == [(SENT + 9 + 2 * UNRESOLVED, 360 + 2 * 135)]
    assert liquidity(tx, "EUR") == (10_000 if given_up == "USD" else 10_000 - SENT // 2)


def test_unresolved_lists_each_packet_with_its_payment_wallet_amount_and_time(
    payres: Command, as_json: AsJson, given_up: str
) -> None:
    amount = "1.50" if given_up == "USD" else "0.75"
    assert as_json("peer", "unresolved", "bank")["packets"] == [
        {
            "id": packet_id,
            "peer": "bank",
            "payment": PAYMENT,
            "wallet": "alice",
            "amount": amount,
            "assetCode": given_up,
            "assetScale": 2,
            "expiredAt": "2023-11-14T22:13:20.000Z",
            "receivedAt": None,
        }
        for packet_id in UNKNOWN
    ]
    assert payres("peer", "doubts", "bank").stdout == payres("peer", "unresolved", "bank").stdout
    assert rows_of(payres("peer", "unresolved", "bank", "--packets"))[1:] == [
        [packet_id, "bank", PAYMENT, "alice", amount, given_up, "2023-11-14T22:13:20.000Z", TO_COMPARE]
        for packet_id in UNKNOWN
    ]
    unresolved = as_json("peer", "show", "bank")["inDoubt"]
    assert unresolved == {"packets": 2, "amount": "3.00" if given_up == "USD" else "1.50"}


def test_unresolved_is_a_row_for_each_payment_with_the_figures_to_compare(
    payres: Command, as_json: AsJson, given_up: str
) -> None:
    least, amount, most = ("4.00", "3.00", "7.00") if given_up == "USD" else ("2.00", "1.50", "3.50")
    when = "2023-11-14T22:13:20.000Z"
    [found] = as_json("peer", "unresolved", "bank")["payments"]
    assert found == {
        "peer": "bank",
        "direction": "outgoing",
        "payment": PAYMENT,
        "wallet": "alice",
        "receiver": "https://elsewhere.example/incoming-payments/1",
        "forwardedTo": None,
        "packets": 2,
        "amount": amount,
        "assetCode": given_up,
        "assetScale": 2,
        "firstAt": when,
        "lastAt": when,
        "least": least,
        "most": most,
    }
    compare = f"For the whole payment the peer counts {least} if none of these arrived, {most} if all did"
    assert rows_of(payres("peer", "unresolved", "bank"))[1:] == [
        [PAYMENT, "outgoing", "alice", "2", amount, given_up, when, when, compare]
    ]
    as_json("peer", "resolve", UNKNOWN[0], "--returned")
    [left] = as_json("peer", "unresolved", "bank")["payments"]
    assert left["packets"] == 1


@pytest.mark.usefixtures("given_up")
@pytest.mark.parametrize("outcomes", [[], ["--delivered", "--returned"], ["--returned", "--delivered"]])
def test_packet_is_resolved_one_way(payres: Command, as_json: AsJson, outcomes: list[str]) -> None:
    refused = payres("peer", "resolve", UNKNOWN[0], *outcomes)
    assert refused.exit_code == 2
    assert "either --delivered or --returned" in refused.stderr
    assert as_json("peer", "show", "bank")["inDoubt"]["packets"] == 2


@pytest.mark.usefixtures("given_up")
def test_returned_packets_leave_nothing_behind(payres: Command, as_json: AsJson, tx: Work) -> None:
    before = as_json("wallet", "show", "alice"), as_json("peer", "show", "bank")["balance"]
    for left, packet_id in ((1, UNKNOWN[0]), (0, UNKNOWN[1])):
        resolved = as_json("peer", "resolve", packet_id, "--returned")
        assert (resolved["id"], resolved["outcome"]) == (packet_id, "returned")
        assert as_json("peer", "show", "bank")["inDoubt"]["packets"] == left
        assert spent(tx) == [(SENT + 9 + left * UNRESOLVED, 360 + left * 135)]
        assert as_json("ledger", "check")["ok"] is True
    assert (as_json("wallet", "show", "alice"), as_json("peer", "show", "bank")["balance"]) == before
    assert payres("peer", "unresolved", "bank").stdout == "No packet to bank is unresolved\n"


def test_delivered_packets_are_owed_to_the_peer_out_of_liquidity(as_json: AsJson, tx: Work, given_up: str) -> None:
    assets.deposit_liquidity(tx, "USD", 2, "5.00")
    wallet, owed, pool = as_json("wallet", "show", "alice"), peer_balance(tx), liquidity(tx, given_up)
    counted = spent(tx)
    worth = UNRESOLVED if given_up == "USD" else UNRESOLVED // 2
    for number, packet_id in enumerate(UNKNOWN, 1):
        assert as_json("peer", "resolve", packet_id, "--delivered")["outcome"] == "delivered"
        assert peer_balance(tx) == owed + number * worth
        assert liquidity(tx, given_up) == pool - number * worth
        assert as_json("ledger", "check")["ok"] is True
    assert as_json("peer", "unresolved", "bank") == {"payments": [], "packets": []}
    assert as_json("peer", "show", "bank")["packetsSent"] == 3
    assert as_json("wallet", "show", "alice") == wallet
    assert spent(tx) == counted  # it was delivered


@pytest.mark.parametrize("given_up", ["USD"], indirect=True)
def test_delivered_packet_needs_the_liquidity(payres: Command, as_json: AsJson, tx: Work, given_up: str) -> None:
    result = payres("peer", "resolve", UNKNOWN[0], "--delivered")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"`payres liquidity deposit 1.50 --asset {given_up} --scale 2`" in result.stderr
    assert len(as_json("peer", "unresolved", "bank")["packets"]) == 2
    assert payres("liquidity", "deposit", given_up, "2", "1.50").exit_code == 0
    assert payres("peer", "resolve", UNKNOWN[0], "--delivered").stdout == (
        f"Packet {UNKNOWN[0]} with USD 1.50 is recorded as delivered\n"
    )
    assert liquidity(tx, given_up) == 0


@pytest.mark.usefixtures("given_up")
def test_packet_is_resolved_once(payres: Command, as_json: AsJson) -> None:
    as_json("peer", "resolve", UNKNOWN[0], "--returned")
    for outcome in ("--returned", "--delivered"):
        assert "The packet is rejected already" in payres("peer", "resolve", UNKNOWN[0], outcome).stderr
    assert "The packet is fulfilled already" in payres("peer", "resolve", "sent", "--returned").stderr
    assert "There is no packet 'nowhere'" in payres("peer", "resolve", "nowhere", "--returned").stderr


@pytest.mark.usefixtures("given_up")
def test_packet_in_flight_is_not_resolved(payres: Command, tx: Work) -> None:
    known = PACKETS.get(tx, "sent")
    assert known is not None
    tx.execute("UPDATE outgoing_payment SET state = 'sending', failure = NULL, ended_at = NULL")
    PACKETS.insert(tx, msgspec.structs.replace(known, id="p", prepare=b"prepare", state="prepared"))
    assert "The packet is in flight" in payres("peer", "resolve", "p", "--delivered").stderr
    tx.execute("UPDATE peer SET removed_at = 1")  # as an earlier version may have done
    assert "The peer of the packet was removed" in payres("peer", "resolve", UNKNOWN[0], "--delivered").stderr


@pytest.mark.usefixtures("given_up")
def test_peer_with_unresolved_packets_is_not_removed(payres: Command, as_json: AsJson) -> None:
    as_json("peer", "withdraw", "bank", as_json("peer", "show", "bank")["balance"])
    refused = payres("peer", "remove", "bank")
    assert "Some packets to the peer bank are unresolved: resolve them, then" in refused.stderr
    assert "; `payres peer unresolved bank` lists them" in refused.stderr
    for packet_id in UNKNOWN:
        as_json("peer", "resolve", packet_id, "--returned")
    assert payres("peer", "remove", "bank").exit_code == 0


@pytest.mark.parametrize("given_up", ["USD"], indirect=True)
@pytest.mark.parametrize("outcome", ["delivered", "returned"])
def test_packet_that_an_earlier_version_charged_is_resolved_too(
    outcome: str, as_json: AsJson, tx: Work, given_up: str
) -> None:
    """Before 0.2 the payer was charged for unresolved packets, and the operator's liquidity got the money."""
    wallet = require_wallet(tx, "alice")
    tx.execute(
        "UPDATE outgoing_payment SET unresolved_debit = 0, unresolved_receive = 0, sent = sent + ?", (UNRESOLVED,)
    )
    tx.execute("UPDATE grant_spending SET debit = debit - ?, receive = 360", (UNRESOLVED,))
    tx.execute("UPDATE packet SET state = 'rejected' WHERE id = ?", (UNKNOWN[1],))
    pool = ledger.operator_account(tx, wallet.asset_id, "liquidity")
    about = {"outgoing_payment_id": PAYMENT, "packet_id": UNKNOWN[0]}
    ledger.transfer(tx, wallet.account_id, pool, UNRESOLVED, "exchange", **about)
    assert as_json("ledger", "check")["ok"] is True
    before, owed = as_json("wallet", "show", "alice")["balance"], peer_balance(tx)
    as_json("peer", "resolve", UNKNOWN[0], f"--{outcome}")
    assert liquidity(tx, given_up) == 0
    assert as_json("ledger", "check")["ok"] is True
    assert peer_balance(tx) == owed + (UNRESOLVED if outcome == "delivered" else 0)
    assert (as_json("wallet", "show", "alice")["balance"] == before) is (outcome == "delivered")


def peer_balance(tx: Work) -> int:
    return peers.require_peer(tx, "bank").balance
