"""What grants have spent and have left, as operators see it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from payres.cli import main
from payres.operator.grants import GrantSpending, grant, require_grant
from payres.testing.instance import Instance
from tests.helpers import Json, usd


def spend(payres: Instance, limits: Json | None, cents: int = 500) -> str:
    """The id of a grant with these limits, with which so much was paid."""
    bill = payres.client.create_incoming_payment(payres.wallet("bob"), usd(cents))
    quote = payres.client.create_quote(payres.wallet("alice"), bill["id"])
    paid = payres.client.create_outgoing_payment(payres.wallet("alice"), quote["id"], limits)["id"].rpartition("/")[2]
    [grant_id] = payres.read(
        lambda work: work.execute("SELECT grant_id FROM outgoing_payment WHERE id = ?", (paid,)).fetchone()
    )
    return str(grant_id)


def spending(payres: Instance, grant_id: str) -> GrantSpending | None:
    return payres.read(lambda work: grant(work, require_grant(work, grant_id))).spending


@pytest.mark.parametrize(
    ("limits", "debit_left", "receive_left"),
    [
        (None, None, None),
        ({"debitAmount": usd(1200)}, "7.00", None),
        ({"receiveAmount": usd(501)}, None, "0.01"),
        ({"debitAmount": usd(500), "interval": "R/2026-01-01T00:00:00Z/P1M"}, "0.00", None),
    ],
)
def test_spending_is_what_was_paid_and_what_limits_leave(
    payres: Instance, limits: Json | None, debit_left: str | None, receive_left: str | None
) -> None:
    assert spending(payres, spend(payres, limits)) == GrantSpending(
        debit="5.00",
        debit_left=debit_left,
        debit_asset_code="USD",
        debit_asset_scale=2,
        receive="5.00",
        receive_left=receive_left,
        receive_asset_code="USD",
        receive_asset_scale=2,
    )


@pytest.mark.parametrize(
    ("action", "limits"),
    [("create", {"debitAmount": usd(500), "interval": "R0/2100-01-01T00:00:00Z/P1M"}), ("read", None)],
    ids=["no window open", "pays nothing"],
)
def test_grant_that_can_pay_nothing_now_has_no_spending(payres: Instance, action: str, limits: Json | None) -> None:
    item = {"type": "outgoing-payment", "actions": [action], "identifier": payres.wallet("alice")}
    payres.client.grant(item | ({} if limits is None else {"limits": limits}))
    [newest] = payres.read(lambda work: work.execute('SELECT max(id) FROM "grant"').fetchone())
    assert spending(payres, newest) is None


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"debitAmount": usd(1200)}, "7.00 USD\n"),
        ({"receiveAmount": usd(700)}, "2.00 USD to receive\n"),
    ],
)
def test_command_shows_what_is_spent_and_left(
    payres: Instance, limits: Json, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["grant", "show", spend(payres, limits), "--database", payres.context.database.path]
    assert says in CliRunner().invoke(main, words, catch_exceptions=False).stdout
