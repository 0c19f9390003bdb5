"""What apps may still spend, as the owner of a wallet sees it."""

from itertools import count
from typing import Any

import pytest

from payres.core.protocol.clock import DAY, HOUR, format_time
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.operator import keys, wallets
from payres.people import apps
from payres.people.apps import App, Budgets
from tests.helpers import Json, amount, last_segment, receiver_of, usd
from tests.instance import Instance
from tests.signing_client import Client

NUMBERS = count(1)


def new_owner(instance: Instance) -> Client:
    """A wallet with 100.00, and a program of its owner."""
    path = f"owner-{next(NUMBERS)}"
    program = instance.new_client(path)
    instance.write(lambda work: wallets.deposit(work, path, "100.00"))
    return program


def path_of(owner: Client) -> str:
    return last_segment(owner.wallet_address)


# How the Web Monetization extension asks for consent.
EXTENSION: Json = {
    "interact": {
        "start": ["redirect"],
        "finish": {"method": "redirect", "uri": "https://webmonetization.org/welcome", "nonce": "n"},
    }
}


def ask(client: Client, owner: Client, limits: Json | None = None, *actions: str, **members: Any) -> tuple[str, str]:
    """A grant that the owner allows: its id, and its token."""
    item: Json = {"type": "outgoing-payment", "actions": list(actions or ["create"])}
    item |= {"identifier": owner.wallet_address} | ({} if limits is None else {"limits": limits})
    answer = client.obtain_grant(item, **members)
    return last_segment(answer["continue"]["uri"]), answer["access_token"]["value"]


def pay(client: Client, owner: Client, token: str, receiver: str, cents: int) -> None:
    body = {"walletAddress": owner.wallet_address, "incomingPayment": receiver, "debitAmount": usd(cents)}
    answer = client.post("/outgoing-payments", body, token)
    assert answer.status_code == 201, answer.text


def budgets(instance: Instance, owner: Client) -> list[App]:
    return [*instance.read(lambda work: apps.budgets(work, require_wallet(work, path_of(owner))).apps)]


def app(instance: Instance, owner: Client, grant_id: str) -> App:
    return instance.read(lambda work: apps.require_app(work, require_wallet(work, path_of(owner)), grant_id))


def ended(instance: Instance, owner: Client, **options: Any) -> tuple[list[str], bool]:
    found, more = instance.read(lambda work: apps.ended_apps(work, [require_wallet(work, path_of(owner))], **options))
    return [one.standing for one in found], more


WINDOWS = [
    ({"debitAmount": usd(2000)}, {"left": 1500, "monthly": None, "window": None, "renews": None, "ends": None}),
    ({}, {"left": None, "monthly": None, "window": None, "renews": None, "ends": None}),
    (
        {"debitAmount": usd(2000), "interval": "R/{now}/P1W"},
        {"left": 1500, "monthly": 8697, "window": 1, "renews": 7 * DAY, "ends": None},
    ),
    (
        {"debitAmount": usd(2000), "interval": "R1/{now}/P1D"},
        {"left": 1500, "monthly": 4000, "window": 1, "renews": DAY, "ends": 2 * DAY},
    ),
    (
        {"debitAmount": usd(2000), "interval": "R0/{now}/P30D"},
        {"left": 1500, "monthly": 2000, "window": 1, "renews": None, "ends": 30 * DAY},
    ),
    (
        {"debitAmount": usd(12000), "interval": "R/{now}/P365D"},
        {"left": 11500, "monthly": 12000, "window": 1, "renews": 365 * DAY, "ends": None},
    ),
    ({"receiveAmount": amount(2000)}, {"left": 1500, "monthly": None, "window": None, "renews": None, "ends": None}),
]


@pytest.mark.parametrize(("limits", "expected"), WINDOWS)
def test_budget_says_what_is_left_and_until_when(shared: Instance, limits: Json, expected: Json) -> None:
    owner, now = new_owner(shared), shared.clock.now()
    start = now - now % HOUR
    limits = {
        name: value.format(now=format_time(start)) if name == "interval" else value for name, value in limits.items()
    }
    grant_id, token = ask(shared.client, owner, limits)
    pay(shared.client, owner, token, receiver_of(shared), 500)
    [budget] = budgets(shared, owner)
    found = {"left": budget.left, "monthly": budget.monthly, "window": budget.window}
    found |= {
        name: None if moment is None else moment - start
        for name, moment in (("renews", budget.renews_at), ("ends", budget.ends_at))
    }
    assert found == expected
    assert (budget.grant.id, budget.spent, budget.who.name, budget.who.is_claimed) == (
        grant_id,
        500,
        "Example Shop",
        True,
    )
    assert budget.who.address is not None
    assert budget.who.address.text == shared.client.wallet_address


def test_what_is_allowed_once_is_not_a_month(shared: Instance) -> None:
    owner, shop = new_owner(shared), shared.client
    for limits in ({"debitAmount": usd(2000)}, {"debitAmount": usd(700), "interval": "R/2026-01-01T00:00:00Z/P1M"}):
        ask(shop, owner, limits)
    found = Budgets(budgets(shared, owner))
    assert (found.monthly, found.once, found.is_endless) == (700, 2000, False)
    ask(shop, owner, {})
    assert Budgets(budgets(shared, owner)).is_endless


def test_window_that_is_to_come_is_not_spent_from(shared: Instance) -> None:
    owner, start = new_owner(shared), shared.clock.now() // DAY * DAY + DAY
    ask(shared.client, owner, {"debitAmount": usd(700), "interval": f"R/{format_time(start)}/P1M"})
    [budget] = budgets(shared, owner)
    assert (budget.spent, budget.left, budget.window, budget.renews_at) == (0, 700, None, start)


def test_own_program_has_the_name_of_its_key_also_when_that_is_revoked(shared: Instance) -> None:
    owner = new_owner(shared)
    grant_id, _ = ask(owner, owner, {"debitAmount": usd(700)})
    who = app(shared, owner, grant_id).who
    assert (who.name, who.is_own, who.is_claimed) == ("", True, False)
    shared.write(lambda work: keys.add_key(work, path_of(owner), owner.jwk, "My laptop"))
    shared.write(lambda work: keys.revoke_key(work, path_of(owner), owner.jwk.kid))
    who = app(shared, owner, grant_id).who
    assert who.name == "My laptop"
    assert who.key
    assert who.key.revoked_at


def test_what_ended_is_apart_with_how_it_ended(payres: Instance) -> None:
    owner, shop = new_owner(payres), payres.client
    _, token = ask(shop, owner, {"debitAmount": usd(500)})
    pay(shop, owner, token, receiver_of(payres), 500)  # all of it
    receiver = receiver_of(payres, 495)
    _, token = ask(shop, owner, {"debitAmount": usd(520), "receiver": receiver})
    pay(shop, owner, token, receiver, 495)  # less, and nothing more to pay there
    stopped, _ = ask(shop, owner, {"debitAmount": usd(500)})
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": owner.wallet_address}
    payres.deny(shop.request_grant(item).json()["interact"]["redirect"])
    payres.approve(shop.request_grant(item).json()["interact"]["redirect"])
    cancelled = shop.request_grant(item).json()  # of no interest: nobody has decided
    follow_up = cancelled["continue"]
    assert shop.delete(follow_up["uri"], follow_up["access_token"]["value"]).status_code == 204
    shop.request_grant(item)  # nor has anybody here
    looks, _ = ask(shop, owner, None, "list-all")
    now = payres.clock.now()
    ask(shop, owner, {"debitAmount": usd(500), "interval": f"R0/{format_time(now)}/PT2H"})

    def stop(work: Work) -> App:
        apps.revoke(work, stopped)
        return apps.require_app(work, require_wallet(work, path_of(owner)), stopped)

    assert payres.write(stop).standing == "stopped"
    assert [one.spent for one in budgets(payres, owner)] == [0, 0]  # allowed and not yet fetched, and the interval
    payres.clock.advance(2 * 3600)
    assert budgets(payres, owner) == []
    assert ended(payres, owner) == (["over", "lapsed", "denied", "stopped", "paid", "paid"], False)
    assert ended(payres, owner, count=2) == (["over", "lapsed"], True)
    assert ended(payres, owner, before=stopped) == (["paid", "paid"], False)
    assert app(payres, owner, looks).standing == "looks"
