"""Specification 2.7 and 4.10: continuation of grant requests, and the tokens that come of it."""

import re
from typing import Any

import httpx2

from tests.helpers import Json, usd
from tests.specification.driver import Driver
from tests.specification.scenario import Row, Send, breaks, keeps, play, table
from tests.specification.shapes import GRANTED, STILL_PENDING, TO_INTERACT

INTERVAL = "R11/2096-01-01T00:00:00Z/P1M"
OPAQUE = re.compile(r"[!-~]{20,}")


def continued(finish: bool = True, **limits: Any) -> Send:
    """The answer that carries the token, after consent."""

    def send(driver: Driver) -> httpx2.Response:
        asked = driver.ask(finish=finish, **limits)
        return driver.resume(asked, driver.approve(asked) or None)

    return send


def with_limits(**limits: Any) -> Send:
    """The granted access, whose limits are those that were asked for."""

    def send(driver: Driver) -> httpx2.Response:
        answer = continued(**limits)(driver)
        [item] = answer.json()["access_token"]["access"]
        assert item["limits"] == limits
        return answer

    return send


def with_receiver(driver: Driver) -> httpx2.Response:
    return with_limits(receiver=driver.incoming(), debitAmount=usd(500), interval=INTERVAL)(driver)


def asked_for(*access: Json, **members: Any) -> Send:
    """A grant request; {alice} in an identifier is the wallet address of alice."""

    def send(driver: Driver) -> httpx2.Response:
        items = [
            item
            | (
                {"identifier": item["identifier"].format(alice=driver.instance.wallet("alice"))}
                if item.get("identifier")
                else {}
            )
            for item in access
        ]
        return driver.client.request_grant(*items, **members)

    return send


def outgoing(**limits: Any) -> Json:
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": "{alice}"}
    return item | ({"limits": limits} if limits else {})


def incoming(*actions: str) -> Json:
    return {"type": "incoming-payment", "actions": list(actions)}


def resumed(reference: str | None = "wrong", finish: bool = True, approve: bool = True) -> Send:
    """A continuation with this interact_ref."""

    def send(driver: Driver) -> httpx2.Response:
        asked = driver.ask(finish=finish)
        if approve:
            driver.approve(asked)
        return driver.resume(asked, reference)

    return send


def resumed_twice(driver: Driver) -> httpx2.Response:
    asked = driver.ask()
    reference = driver.approve(asked)
    assert driver.resume(asked, reference).status_code == 200
    return driver.resume(asked, reference)


def resumed_with_reference_of_another(driver: Driver) -> httpx2.Response:
    reference = driver.approve(driver.ask())
    asked = driver.ask()
    driver.approve(asked)
    return driver.resume(asked, reference)


def resumed_when_denied(driver: Driver) -> httpx2.Response:
    asked = driver.ask()
    driver.instance.deny(asked["interact"]["redirect"])
    return driver.resume(asked)


def resumed_when_nobody_decided_in_time(driver: Driver) -> httpx2.Response:
    asked = driver.ask(finish=False)
    driver.instance.clock.advance(driver.instance.context.settings.interaction_lifetime)
    return driver.resume(asked)


def continued_after(seconds: int) -> Send:
    """A continuation with the interact_ref of an approval so long ago."""

    def send(driver: Driver) -> httpx2.Response:
        asked = driver.ask()
        reference = driver.approve(asked)
        driver.instance.clock.advance(seconds)
        return driver.resume(asked, reference)

    return send


def resumed_when_cancelled(driver: Driver) -> httpx2.Response:
    asked = driver.ask()
    follow_up = asked["continue"]
    assert driver.client.delete(follow_up["uri"], follow_up["access_token"]["value"]).status_code == 204
    return driver.resume(asked)


def resumed_by_other(driver: Driver) -> httpx2.Response:
    asked = driver.ask()
    return driver.resume(asked, driver.approve(asked), driver.other)


def resumed_with_token(token: str | None) -> Send:
    def send(driver: Driver) -> httpx2.Response:
        asked = driver.ask()
        body = {"interact_ref": driver.approve(asked)}
        return driver.client.post(asked["continue"]["uri"], body, token)

    return send


def resumed_at(path: str) -> Send:
    """A continuation at a URI that nobody was given, with a valid continuation token."""
    return lambda driver: driver.client.post(path, None, driver.ask()["continue"]["access_token"]["value"])


def resumed_with_body(**body: Any) -> Send:
    def send(driver: Driver) -> httpx2.Response:
        asked = driver.ask()
        return driver.resume(asked, **({"interact_ref": driver.approve(asked)} | body))

    return send


def resumed_unsigned(driver: Driver) -> httpx2.Response:
    follow_up = driver.ask()["continue"]
    return driver.anonymous.post(
        follow_up["uri"], headers={"authorization": f"GNAP {follow_up['access_token']['value']}"}
    )


def polled_after(seconds: float, finish: bool = False) -> Send:
    """A poll so many seconds after the request, where five must pass."""

    def send(driver: Driver) -> httpx2.Response:
        asked = driver.ask(driver.patient, finish)
        driver.patient.clock.advance(seconds)
        return driver.resume(asked, by=driver.patient.client)

    return send


def polled_twice(seconds: float) -> Send:
    """A second poll so many seconds after the first, which came in time."""

    def send(driver: Driver) -> httpx2.Response:
        asked = driver.ask(driver.patient, finish=False)
        driver.patient.clock.advance(6)
        assert driver.resume(asked, by=driver.patient.client).status_code == 200
        driver.patient.clock.advance(seconds)
        return driver.resume(asked, by=driver.patient.client)

    return send


def redirected_at_once(driver: Driver) -> httpx2.Response:
    asked = driver.ask(driver.patient)
    return driver.resume(asked, driver.approve(asked, driver.patient), driver.patient.client)


def pays_with_expired_token(seconds: int) -> Send:
    """An incoming payment made so many seconds before its token expires."""

    def send(driver: Driver) -> httpx2.Response:
        granted = driver.client.obtain_grant(incoming("create"))["access_token"]
        driver.instance.clock.advance(granted["expires_in"] - seconds)
        return driver.client.post("/incoming-payments", {"walletAddress": driver.taker}, granted["value"])

    return send


def managed_apart(driver: Driver) -> httpx2.Response:
    """A grant whose manage URI differs from that of another, and has nothing of the token's value."""
    one = continued()(driver).json()["access_token"]
    answer = continued()(driver)
    other = answer.json()["access_token"]
    assert one["manage"] != other["manage"]
    assert one["value"] not in one["manage"]
    return answer


def managed_with_other_token(driver: Driver) -> httpx2.Response:
    """The rotation of one token with another one."""
    one, other = (driver.client.obtain_grant(incoming("create"))["access_token"] for _ in range(2))
    return driver.client.post(one["manage"], None, other["value"])


ALL_ACTIONS = ("create", "complete", "read", "read-all", "list")

ROWS: list[Row] = [
    # 2.7: the answer with the token
    keeps(
        "2.7.1 2.7.5 4.10.1 8.5",
        "what comes after consent",
        continued(),
        200,
        shapes={"": GRANTED},
        values={"access_token.value": OPAQUE, "access_token.expires_in": 600, "continue.access_token.value": OPAQUE},
        absent="continue.wait interact",
    ),
    keeps(
        "2.7.2",
        "manage is of this token alone",
        managed_apart,
        200,
        values={"access_token.manage": re.compile(r"http://.+/token/.+")},
    ),
    breaks("2.7.2", "the manage URI of another token", managed_with_other_token, "401 invalid_token other_token"),
    keeps("2.7.3", "ten seconds before it expires", pays_with_expired_token(10), 201, present="id"),
    breaks("2.7.3 5.7", "when it expires", pays_with_expired_token(0), "401 invalid_token expired_token"),
    keeps(
        "2.7.4",
        "identifier and action",
        continued(),
        200,
        present="access_token.access.0.identifier",
        absent="access_token.access.0.limits access_token.access.1",
    ),
    keeps(
        "2.7.4 2.7.8",
        "receiver, interval and debitAmount",
        with_receiver,
        200,
        present="access_token.access.0.limits.receiver",
    ),
    keeps(
        "2.7.8",
        "receiveAmount",
        with_limits(receiveAmount=usd(500)),
        200,
        values={"access_token.access.0.limits.receiveAmount": usd(500)},
    ),
    breaks(
        "2.7.4 2.7.8",
        "no identifier",
        asked_for({"type": "outgoing-payment", "actions": ["create"]}),
        "400 invalid_request",
    ),
    breaks(
        "2.7.4 2.7.8",
        "nobody's identifier",
        asked_for(outgoing() | {"identifier": "http://127.0.0.1/spec-nobody"}),
        "400 invalid_request field=access_token.access.identifier",
    ),
    breaks(
        "2.7.8",
        "an interval that is none",
        asked_for(outgoing(interval="monthly")),
        "400 invalid_request field=access_token.access.limits.interval",
    ),
    breaks(
        "2.7.8",
        "an interval of nothing",
        asked_for(outgoing(interval="R/2026-01-01T00:00:00Z/PT0S")),
        "400 invalid_request field=access_token.access.limits.interval",
    ),
    breaks(
        "2.7.8",
        "a receiver that is no incoming payment",
        asked_for(outgoing(receiver="http://127.0.0.1/x")),
        "400 invalid_request field=access_token.access.limits.receiver",
    ),
    breaks(
        "2.7.8",
        "another asset",
        asked_for(outgoing(debitAmount=usd(1) | {"assetCode": "EUR"})),
        "400 invalid_request field=access_token.access.limits.debitAmount",
    ),
    breaks(
        "2.7.8 9.3.5",
        "both amounts",
        asked_for(outgoing(debitAmount=usd(1), receiveAmount=usd(1))),
        "400 invalid_request",
    ),
    keeps("9.3.5", "one amount", asked_for(outgoing(debitAmount=usd(1))), 200, shapes={"": TO_INTERACT}),
    keeps(
        "2.7.7",
        "all the actions that need no consent",
        asked_for(incoming(*ALL_ACTIONS)),
        200,
        shapes={"": GRANTED},
        values={"access_token.access": [incoming(*ALL_ACTIONS)]},
    ),
    keeps(
        "2.7.7",
        "list-all, with consent",
        asked_for(incoming("list-all") | {"identifier": "{alice}"}),
        200,
        shapes={"": TO_INTERACT},
    ),
    *(
        breaks("2.7.7", name, asked_for(incoming(*actions)), "400 invalid_request")
        for name, actions in {
            "an unknown action": ["delete"],
            "one action twice": ["read", "read"],
            "no action": [],
            "in capitals": ["Create"],
        }.items()
    ),
    breaks(
        "2.7.7",
        "an unknown type",
        asked_for({"type": "incoming-payments", "actions": ["create"]}),
        "400 invalid_request",
    ),
    # 8.3
    keeps(
        "8.3",
        "three items",
        asked_for(incoming("create"), incoming("read"), {"type": "quote", "actions": ["create"]}),
        200,
        present="access_token.access.2",
    ),
    breaks(
        "8.3",
        "four items",
        asked_for(*(incoming(action) for action in ("create", "read", "list", "complete"))),
        "400 invalid_request",
    ),
    breaks(
        "8.3",
        "one item twice",
        asked_for(incoming("create"), incoming("create")),
        "400 invalid_request field=access_token.access",
    ),
    # 2.7.6, 4.10.5, 7.1, 8.4: waiting
    keeps(
        "2.7.6 8.4 8.5",
        "where to interact, and how long to wait",
        lambda driver: driver.patient.client.request_grant(outgoing() | {"identifier": driver.patient.wallet("alice")}),
        200,
        shapes={"": TO_INTERACT},
        values={"continue.wait": 5},
    ),
    keeps(
        "2.7.6 4.10.2 7.1",
        "a poll after six seconds",
        polled_after(6),
        200,
        shapes={"": STILL_PENDING},
        values={"continue.wait": 5},
    ),
    keeps("4.10.5", "the redirect of a decision, at once", redirected_at_once, 200, shapes={"": GRANTED}),
    keeps("4.10.5 7.1", "a second poll six seconds after the first", polled_twice(6), 200, shapes={"": STILL_PENDING}),
    breaks(
        "2.7.6 4.10.5 7.1", "a poll after three seconds", polled_after(3), "400 too_fast", present="error.details.wait"
    ),
    breaks(
        "4.10.5 7.1",
        "a second poll three seconds after the first",
        polled_twice(3),
        "400 too_fast",
        present="error.details.wait",
    ),
    # 4.10.1: the interact_ref
    keeps("4.10.1", "members that nobody knows", resumed_with_body(client="x"), 200, shapes={"": GRANTED}),
    breaks("4.10.1 7.3", "a wrong one", resumed(), "404 invalid_continuation"),
    breaks("4.10.1 7.3", "one that was used", resumed_twice, "404 invalid_continuation"),
    breaks("4.10.1 7.3", "that of another grant", resumed_with_reference_of_another, "404 invalid_continuation"),
    breaks("4.10.1", "none, after a redirect", resumed(None), "401 request_denied"),
    *(
        breaks(
            "4.10.1 7.4",
            f"one that is {reference!r}",
            resumed_with_body(interact_ref=reference),
            "400 invalid_request field=interact_ref",
        )
        for reference in (1, "", None, "x" * 257)
    ),
    # 4.10.2: polling
    keeps("4.10.2 4.10.4", "approved", continued(finish=False), 200, shapes={"": GRANTED}),
    keeps(
        "4.10.2",
        "undecided",
        resumed(None, finish=False, approve=False),
        200,
        shapes={"": STILL_PENDING},
        absent="access_token",
    ),
    breaks(
        "4.10.2", "by a client that is to wait for the redirect", resumed(None, approve=False), "401 request_denied"
    ),
    # 4.10.3: who continues
    keeps("4.10.3 7.2", "the client that asked", continued(), 200, present="access_token.value"),
    breaks("4.10.3 7.2", "another client", resumed_by_other, "401 invalid_client"),
    breaks("4.10.3 7.2", "no signature", resumed_unsigned, "401 invalid_client missing_signature"),
    breaks("4.10.3 7.2", "no continuation token", resumed_with_token(None), "401 invalid_client missing_token"),
    breaks("4.10.3 7.3", "a wrong continuation token", resumed_with_token("x" * 43), "404 invalid_continuation"),
    breaks(
        "7.3", "no such grant", resumed_at("/continue/00000000-0000-7000-8000-000000000000"), "404 invalid_continuation"
    ),
    breaks("7.3", "an id that is none", resumed_at("/continue/%00"), "404 invalid_continuation"),
    keeps("7.3", "the grant's own URI and token", continued(), 200, present="continue.uri"),
    # 4.10.6: the time to continue
    keeps("4.10.6", "59 minutes after the approval", continued_after(59 * 60), 200, shapes={"": GRANTED}),
    breaks("4.10.6", "an hour after it", continued_after(3600), "401 request_denied approval_expired"),
    # 4.10.4: the decision
    breaks("4.10.4", "denied", resumed_when_denied, "401 user_denied"),
    breaks("4.10.4", "no decision in time", resumed_when_nobody_decided_in_time, "401 request_denied"),
    breaks("4.10.4 7.3", "cancelled", resumed_when_cancelled, "404 invalid_continuation"),
    breaks("4.10.4", "undecided, with an interact_ref", resumed(approve=False), "404 invalid_continuation"),
]


@table(ROWS)
def test_continuation(driver: Driver, row: Row) -> None:
    play(driver, row)
