"""What grants have spent and have left, as operators see it."""

import json

import pytest
from click.testing import CliRunner

from payres.cli import main
from payres.core.protocol.errors import WrongState
from payres.operator import wallets
from payres.operator.grants import decide, revoke
from tests.cli.conftest import facts_in
from tests.helpers import Json, usd
from tests.instance import Instance


def shown(payres: Instance) -> tuple[Json | None, str | None]:
    """What the newest grant has spent, and the command's text for what is left."""
    [newest] = payres.read(lambda work: work.execute('SELECT max(id) FROM "grant"').fetchone())
    words = ["grant", "show", newest, "--database", payres.context.database.path]
    text, printed = (CliRunner().invoke(main, [*words, *more]).stdout for more in ((), ("--json",)))
    return json.loads(printed)["spending"], facts_in(text).get("Left")


@pytest.mark.parametrize(
    ("limits", "debit_left", "receive_left", "words"),
    [
        (None, None, None, "no limit"),
        ({"debitAmount": usd(1200)}, "7.00", None, "USD 7.00"),
        ({"receiveAmount": usd(501)}, None, "0.01", "USD 0.01 to receive"),
        ({"debitAmount": usd(500), "interval": "R/2026-01-01T00:00:00Z/P1M"}, "0.00", None, "USD 0.00"),
    ],
)
def test_spending_is_what_was_paid_and_what_limits_leave(
    payres: Instance, limits: Json | None, debit_left: str | None, receive_left: str | None, words: str
) -> None:
    bill = payres.client.create_incoming_payment(payres.wallet("bob"), usd(500))
    quote = payres.client.create_quote(payres.wallet("alice"), bill["id"])
    payres.client.create_outgoing_payment(payres.wallet("alice"), quote["id"], limits)
    spending = {"debit": "5.00", "debitLeft": debit_left, "receive": "5.00", "receiveLeft": receive_left}
    assets = {"debitAssetCode": "USD", "debitAssetScale": 2, "receiveAssetCode": "USD", "receiveAssetScale": 2}
    assert shown(payres) == (spending | assets, words)


def test_grant_that_was_denied_or_ended_has_nothing_left(payres: Instance) -> None:
    item: Json = {"type": "outgoing-payment", "actions": ["create"], "identifier": payres.wallet("alice")}
    item["limits"] = {"debitAmount": usd(1200)}
    asked = payres.client.request_grant(item, interact={"start": ["redirect"]}).json()
    assert shown(payres)[1] == "USD 12.00"
    payres.deny(asked["interact"]["redirect"])
    assert shown(payres) == (None, None)
    payres.client.grant(item)
    [newest] = payres.read(lambda work: work.execute('SELECT max(id) FROM "grant"').fetchone())
    payres.write(lambda work: revoke(work, newest))
    spending, words = shown(payres)
    assert (spending and spending["debit"], words) == ("0.00", None)


@pytest.mark.parametrize(
    ("action", "limits"),
    [("create", {"debitAmount": usd(500), "interval": "R0/2100-01-01T00:00:00Z/P1M"}), ("read", None)],
    ids=["no window open", "pays nothing"],
)
def test_grant_that_can_pay_nothing_now_has_no_spending(payres: Instance, action: str, limits: Json | None) -> None:
    item = {"type": "outgoing-payment", "actions": [action], "identifier": payres.wallet("alice")}
    payres.client.grant(item | ({} if limits is None else {"limits": limits}))
    assert shown(payres) == (None, None)


def test_nobody_approves_a_grant_of_an_inactive_wallet(payres: Instance) -> None:
    payres.create_wallet("shut")
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": payres.wallet("shut")}
    payres.client.request_grant(item, interact={"start": ["redirect"]})
    [newest] = payres.read(lambda work: work.execute('SELECT max(id) FROM "grant"').fetchone())
    payres.write(lambda work: wallets.deactivate(work, "shut"))
    with pytest.raises(WrongState, match="is not active, so nothing can be allowed"):
        payres.write(lambda work: decide(work, newest, True))
    assert payres.write(lambda work: decide(work, newest, False)).grant.state == "denied"
