"""Payments between wallets here that an earlier version, which settled them later, left in `sending`."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from payres import ledger
from payres.amounts import Asset
from payres.application import create_app
from payres.cli import main
from payres.clock import SECOND
from payres.operator import invariant_checks, wallets
from payres.operator.assets import deposit_liquidity
from payres.payments.settlement import settle_interrupted
from payres.settings import Settings
from payres.store import grants, incoming
from payres.store.accounts import ACCOUNTS
from payres.store.clients import ensure_client
from payres.store.connections import connect_writer
from payres.store.grants import GRANTS, GrantRecord
from payres.store.incoming import INCOMING, IncomingRecord
from payres.store.outgoing import OUTGOING, OutgoingRecord
from payres.store.work import Transaction, Work
from payres.terms import Terms
from tests.works import sending_payment, work_at

NOW = 1_700_000_000_000_000
GRANT, WINDOW = "grant", 7
FEE = 5
RECEIVED = {"bob": 100, "carla": 92, "alice": 100}  # of 105 with a fee of 5; carla's wallet is in euros
FREE_AT_FIRST = {"alice": 1000_00, "bob": 0, "carla": 0, "USD fees": 0, "USD liquidity": 0, "EUR liquidity": 1000_00}


@pytest.fixture
def work() -> Iterator[Work]:
    with closing(connect_writer(":memory:")) as connection:
        yield opened(connection)


def opened(connection: Transaction) -> Work:
    """Three wallets, one of them with money, liquidity in euros, and a grant."""
    work = work_at(connection, NOW)
    for path, code in (("alice", "USD"), ("bob", "USD"), ("carla", "EUR")):
        wallets.create_wallet(work, path, code, 2, None, None)
    wallets.deposit(work, "alice", "1000.00")
    deposit_liquidity(work, "EUR", 2, "1000.00")
    client = ensure_client(work, "https://shop.example", "https://shop.example", None, NOW)
    alice = wallets.require_wallet(work, "alice").id
    GRANTS.insert(work, GrantRecord(GRANT, client.id, None, "issued", "[]", None, alice, b"", NOW, NOW, None))
    return work


def bill(work: Work, path: str, wanted: int | None = None, lasts: int = 60) -> IncomingRecord:
    """An open incoming payment into a wallet."""
    wallet = wallets.require_wallet(work, path)
    value = None if wanted is None else str(wanted)
    record = IncomingRecord(work.new_id(), wallet.id, 1, value, 0, None, NOW, NOW + lasts * SECOND, None)
    INCOMING.insert(work, record)
    return record


def begin(work: Work, receiver: IncomingRecord) -> OutgoingRecord:
    """A payment of 1.05 USD from alice as the earlier version made it: counted, its money held and not yet moved."""
    payer, payee = wallets.require_wallet(work, "alice"), wallets.require_wallet(work, path_of(work, receiver))
    receive = RECEIVED[payee.path]
    payment = sending_payment(
        work.new_id(),
        payer.id,
        1,
        NOW,
        grant_id=GRANT,
        window_start=WINDOW,
        terms=Terms(
            receiver=work.urls.resource("incoming-payments", receiver.id),
            incoming_payment_id=receiver.id,
            debit=105,
            fee=FEE,
            receive=receive,
            asset=Asset(payee.asset_code, 2),
        ),
    )
    OUTGOING.insert(work, payment)
    ledger.hold(work, payer.account_id, payment.terms.debit, outgoing_payment_id=payment.id)
    if payee.asset_id != payer.asset_id:
        ledger.hold(
            work,
            ledger.operator_account(work, payee.asset_id, "liquidity"),
            payment.terms.receive,
            outgoing_payment_id=payment.id,
        )
    grants.add_spending(work, GRANT, WINDOW, payee.asset_code, 2, payment.terms.debit, payment.terms.receive, NOW)
    return payment


def path_of(work: Work, receiver: IncomingRecord) -> str:
    (path,) = work.execute("SELECT path FROM wallet_address WHERE id = ?", (receiver.wallet_address_id,)).fetchone()
    return str(path)


def ended(work: Work, payment: OutgoingRecord) -> OutgoingRecord:
    found = OUTGOING.get(work, payment.id)
    assert found is not None
    return found


def free(work: Work) -> dict[str, int]:
    """What each account may give, by the wallet's path or the asset and kind."""
    found = {}
    for path in ("alice", "bob", "carla"):
        found[path] = wallets.require_wallet(work, path).account_id
    for code, path in (("USD", "alice"), ("EUR", "carla")):
        asset = wallets.require_wallet(work, path).asset_id
        found |= {f"{code} {kind}": ledger.operator_account(work, asset, kind) for kind in ("fees", "liquidity")}
    figures = {name: ledger.free_balance(ACCOUNTS.by_id(work, one)) for name, one in found.items()}
    return {name: figures[name] for name in FREE_AT_FIRST}


def spent(work: Work) -> list[tuple[int, ...]]:
    """The debit and receive that the grant has spent, by asset."""
    return [tuple(row) for row in work.execute("SELECT debit, receive FROM grant_spending ORDER BY receive_code")]


def fill(work: Work, path: str) -> None:
    """Brings the account that a payment into this wallet goes to close to 1000.00."""
    if path == "alice":  # who pays herself through liquidity
        deposit_liquidity(work, "USD", 2, "999.99")
    else:
        wallets.deposit(work, path, "999.99")


def assert_ledger_holds(work: Work) -> None:
    assert invariant_checks.first_broken(invariant_checks.check(work)) is None


@pytest.mark.parametrize("path", ["bob", "carla", "alice"])
def test_payment_whose_receiver_takes_it_is_paid(work: Work, path: str) -> None:
    receiver = bill(work, path, RECEIVED[path])
    payment = begin(work, receiver)
    assert_ledger_holds(work)
    assert settle_interrupted(work) == 1
    found = ended(work, payment)
    assert (found.state, found.sent, found.delivered, found.ended_at) == ("completed", 105, RECEIVED[path], NOW)
    paid = INCOMING.get(work, receiver.id)
    assert paid is not None
    assert (paid.received, paid.completed) == (RECEIVED[path], True)
    moved = {"alice": -105, "USD fees": FEE}
    if path == "carla":
        moved |= {"carla": 92, "USD liquidity": 100, "EUR liquidity": -92}
    else:
        moved[path] = moved.get(path, 0) + 100
    assert free(work) == {name: figure + moved.get(name, 0) for name, figure in FREE_AT_FIRST.items()}
    assert spent(work) == [(105, RECEIVED[path])]
    assert_ledger_holds(work)


@pytest.mark.parametrize("path", ["bob", "carla", "alice"])
@pytest.mark.parametrize("obstacle", ["completed", "expired", "full", "account"])
def test_payment_that_cannot_be_paid_fails_and_everything_is_given_back(
    work: Work, monkeypatch: pytest.MonkeyPatch, path: str, obstacle: str
) -> None:
    if obstacle == "account":  # whose balance would pass the highest of all others
        fill(work, path)
    before = free(work)
    wanted = RECEIVED[path] - 1 if obstacle == "full" else None
    receiver = bill(work, path, wanted, lasts=0 if obstacle == "expired" else 60)
    payment = begin(work, receiver)
    if obstacle == "completed":
        incoming.complete_incoming(work, receiver.id, NOW)
    with monkeypatch.context() as patch:
        if obstacle == "account":  # the fee has moved by then
            patch.setattr(ledger, "MAX_LEDGER", 1000_00)
        assert settle_interrupted(work) == 1
    found = ended(work, payment)
    assert (found.state, found.sent, found.delivered, found.ended_at) == ("failed", 0, 0, NOW)
    assert found.failure
    assert free(work) == before
    assert work.execute("SELECT count(*) FROM transfer WHERE outgoing_payment_id IS NOT NULL").fetchone() == (0,)
    assert spent(work) == [(0, 0)]
    assert_ledger_holds(work)


def test_payments_are_settled_in_the_order_in_which_they_were_made(work: Work) -> None:
    """What the first leaves decides over the second; one that fails holds up none."""
    receiver, plenty = bill(work, "bob", 150), bill(work, "carla")
    payments = [begin(work, one) for one in (receiver, receiver, plenty)]
    assert settle_interrupted(work) == 3
    assert [ended(work, payment).state for payment in payments] == ["completed", "failed", "completed"]
    assert spent(work) == [(105, 92), (105, 100)]
    assert_ledger_holds(work)


def test_settling_again_does_nothing(work: Work) -> None:
    receiver, late = bill(work, "bob"), bill(work, "bob", 1)
    payments = [begin(work, one) for one in (receiver, late)]
    settle_interrupted(work)
    before = [ended(work, payment) for payment in payments], free(work), spent(work)
    assert settle_interrupted(work_at(work, NOW + SECOND)) == 0
    assert ([ended(work, payment) for payment in payments], free(work), spent(work)) == before
    assert_ledger_holds(work)


def test_payment_to_another_server_is_left_alone(work: Work) -> None:
    payment = begin(work, bill(work, "bob"))
    work.execute("UPDATE outgoing_payment SET incoming_payment_id = NULL")
    assert settle_interrupted(work) == 0
    assert ended(work, payment) == msgspec.structs.replace(
        payment, terms=msgspec.structs.replace(payment.terms, incoming_payment_id=None)
    )
    assert free(work)["alice"] == 1000_00 - 105


def kept(path: str, *receivers: str) -> list[str]:
    """A database with a payment to each of these wallets; the ids of the payments."""
    with closing(connect_writer(path)) as connection:
        connection.execute("BEGIN")
        work = opened(connection)
        ids = [begin(work, bill(work, receiver, lasts=10**9)).id for receiver in receivers]
        connection.execute("COMMIT")
    return ids


async def test_server_settles_them_when_it_starts(tmp_path: Path) -> None:
    path = str(tmp_path / "payres.db")
    ids = kept(path, *["bob", "carla", "alice"] * 100)
    app = create_app(Settings(database=path))
    async with app.router.lifespan_context(app):
        database = app.state.context.database
        states = await database.read(lambda work: {ended_state(work, one) for one in ids})
    assert states == {"completed"}
    checked = CliRunner().invoke(main, ["ledger", "check", "--database", path])
    assert checked.exit_code == 0, checked.output


async def test_server_starts_and_writes_nothing_when_one_cannot_be_settled_for_what_is_missing(tmp_path: Path) -> None:
    path = str(tmp_path / "payres.db")
    [payment_id] = kept(path, "bob")
    with closing(connect_writer(path)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("DELETE FROM account WHERE kind = 'wallet' AND balance = 0")
    app = create_app(Settings(database=path))
    async with app.router.lifespan_context(app):
        context = app.state.context
        assert context.database.stopped
        assert await context.database.read(lambda work: ended_state(work, payment_id)) == "sending"


def ended_state(work: Work, payment_id: str) -> str:
    found = OUTGOING.get(work, payment_id)
    assert found is not None
    return found.state
