"""Specification 2.7 and 4.10: continuation of grant requests, and the tokens that come of it."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx2

from tests.helpers import Json, usd
from tests.specification.driver import NOBODY, Driver
from tests.specification.scenario import ABSENT, Row, breaks, keeps, play, sender, table

INTERVAL = "R11/2096-01-01T00:00:00Z/P1M"
OPAQUE = re.compile(r"[!-~]{20,}")
CONTINUE = {"continue": "access_token uri", "continue.access_token": "value"}
WAITING = {"": "continue", "continue": "access_token uri wait", "continue.access_token": "value"}
INTERACTING = {**WAITING, "": "interact continue", "interact": "redirect finish", "continue": "access_token uri wait?"}
ROTATED = {"": "access_token", "access_token": "value manage expires_in access"}
GRANTED = {**ROTATED, **CONTINUE, "": "access_token continue"}


@sender
def continued(driver: Driver, /, *, finish: bool = True, **limits: Any) -> httpx2.Response:
    """The answer that carries the token, after consent; {receiver} is the URL of an incoming payment."""
    limits |= {"receiver": driver.incoming()} if "receiver" in limits else {}
    asked = driver.ask(finish=finish, **limits)
    answer = driver.resume(asked, driver.approve(asked) or None)
    [item] = answer.json()["access_token"]["access"]
    wanted = {"type": "outgoing-payment", "actions": ["create"], "identifier": driver.instance.wallet("alice")}
    assert item == wanted | ({"limits": limits} if limits else {})
    return answer


@sender
def asked_for(driver: Driver, *access: Json) -> httpx2.Response:
    """A grant request; {alice} in an identifier is the wallet address of alice."""
    alice = driver.instance.wallet("alice")
    items = [
        {name: value.format(alice=alice) if name == "identifier" else value for name, value in item.items()}
        for item in access
    ]
    return driver.client.request_grant(*items)


def outgoing(**limits: Any) -> Json:
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": "{alice}"}
    return item | ({"limits": limits} if limits else {})


def incoming(*actions: str) -> Json:
    return {"type": "incoming-payment", "actions": list(actions)}


@sender
def resumed(driver: Driver, reference: str | None, *, finish: bool = True, is_approved: bool = True) -> httpx2.Response:
    """A continuation with this interact_ref."""
    asked = driver.ask(finish=finish)
    if is_approved:
        driver.approve(asked)
    return driver.resume(asked, reference)


@sender
def resumed_twice(driver: Driver, *, is_used: bool = False) -> httpx2.Response:
    """A continuation that is repeated after its answer, whose token was used or not."""
    asked = driver.ask()
    reference = driver.approve(asked)
    first = driver.resume(asked, reference)
    return repeated(driver, lambda: driver.resume(asked, reference), first, is_used)


@sender
def resumed_with_reference_of_another(driver: Driver) -> httpx2.Response:
    reference = driver.approve(driver.ask())
    asked = driver.ask()
    driver.approve(asked)
    return driver.resume(asked, reference)


@sender
def resumed_when_denied(driver: Driver) -> httpx2.Response:
    asked = driver.ask()
    driver.instance.deny(asked["interact"]["redirect"])
    return driver.resume(asked)


@sender
def resumed_when_nobody_decided_in_time(driver: Driver) -> httpx2.Response:
    asked = driver.ask(finish=False)
    driver.instance.clock.advance(driver.instance.context.settings.interaction_lifetime)
    return driver.resume(asked)


@sender
def resumed_after(driver: Driver, seconds: int) -> httpx2.Response:
    """A continuation with the interact_ref of an approval so long ago."""
    asked = driver.ask()
    reference = driver.approve(asked)
    driver.instance.clock.advance(seconds)
    return driver.resume(asked, reference)


@sender
def resumed_by_other(driver: Driver) -> httpx2.Response:
    asked = driver.ask()
    return driver.resume(asked, driver.approve(asked), driver.other)


@sender
def resumed_with_token(driver: Driver, token: str | None) -> httpx2.Response:
    asked = driver.ask()
    return driver.client.post(asked["continue"]["uri"], {"interact_ref": driver.approve(asked)}, token)


@sender
def resumed_at(driver: Driver, path: str) -> httpx2.Response:
    """A continuation at a URI that nobody was given, with a valid continuation token."""
    return driver.client.post(path, None, driver.ask()["continue"]["access_token"]["value"])


@sender
def resumed_with_body(driver: Driver, /, **body: Any) -> httpx2.Response:
    asked = driver.ask()
    return driver.resume(asked, **({"interact_ref": driver.approve(asked)} | body))


@sender
def resumed_unsigned(driver: Driver) -> httpx2.Response:
    follow_up = driver.ask()["continue"]
    headers = {"authorization": f"GNAP {follow_up['access_token']['value']}"}
    return driver.anonymous.post(follow_up["uri"], headers=headers)


@sender
def asked_patiently(driver: Driver) -> httpx2.Response:
    return driver.patient.client.request_grant(outgoing() | {"identifier": driver.patient.wallet("alice")})


@sender
def polled_after(driver: Driver, *seconds: int) -> httpx2.Response:
    """The last of several polls, each so many seconds after the one before or the request, where five must pass."""
    asked = driver.ask(driver.patient, finish=False)
    for pause in seconds:
        driver.patient.clock.advance(pause)
        answer = driver.resume(asked, by=driver.patient.client)
    return answer


@sender
def redirected_at_once(driver: Driver) -> httpx2.Response:
    asked = driver.ask(driver.patient)
    return driver.resume(asked, driver.approve(asked, driver.patient), driver.patient.client)


@sender
def cancelled(driver: Driver, *, times: int = 1, is_decided: bool = True) -> httpx2.Response:
    """The end of a grant, or of a request for one."""
    follow_up = (driver.client.obtain_grant(incoming("create")) if is_decided else driver.ask())["continue"]
    for _ in range(times):
        answer = driver.client.delete(follow_up["uri"], follow_up["access_token"]["value"])
    assert answer.content == b"" or times > 1
    return answer if is_decided else driver.resume({"continue": follow_up})


@sender
def managed(driver: Driver, method: str, sent: str = "own", *, by: str = "client") -> httpx2.Response:
    """A token's rotation or revocation, after which it is good no more unless that is refused. `sent` is the token that
    goes along: some clients send the one that they were given last, or none."""
    granted, other, ended = (driver.client.obtain_grant(READ) for _ in range(3))
    token, of_other, of_ended = (one["access_token"] for one in (granted, other, ended))
    assert token["manage"] != of_other["manage"]
    assert token["value"] not in token["manage"]
    driver.client.delete(of_ended["manage"], of_ended["value"])
    values = {"own": token["value"], "other": of_other["value"], "ended": of_ended["value"], "unknown": "none"}
    values |= {"continuation": granted["continue"]["access_token"]["value"]}
    if by == "nobody":
        answer = driver.anonymous.request(method, token["manage"], headers={"authorization": f"GNAP {values[sent]}"})
    else:
        client = driver.other if by == "other" else driver.client
        answer = client.request(method, token["manage"], None, values.get(sent))
    assert is_good(driver, token["value"]) is not answer.is_success
    assert is_good(driver, of_other["value"])
    return answer


def is_good(driver: Driver, token: str) -> bool:
    return driver.client.get(f"/incoming-payments/{NOBODY}", token).status_code == 404


@sender
def rotated_at_once(driver: Driver) -> httpx2.Response:
    """The answer to one of many rotations at the same moment; there is one new token, and it is good. A rotation that
    was signed in the same second is a copy."""
    token = driver.client.obtain_grant(READ)["access_token"]
    answers = driver.at_once(lambda _: driver.client.post(token["manage"], None, token["value"]))
    [content] = {answer.content for answer in answers if answer.is_success}
    assert {answer.status_code for answer in answers} <= {200, 401}
    answer = next(answer for answer in answers if answer.content == content)
    rotated = answer.json()["access_token"]
    assert rotated["manage"] not in {token["manage"], rotated["value"]}
    assert rotated["value"] not in {token["value"], rotated["manage"].rpartition("/")[2]}
    assert is_good(driver, rotated["value"])
    return answer


@sender
def rotated_twice(driver: Driver, *, is_used: bool = False) -> httpx2.Response:
    token = driver.client.obtain_grant(READ)["access_token"]
    rotate = partial(driver.client.post, token["manage"], None, token["value"])
    return repeated(driver, rotate, rotate(), is_used)


def repeated(
    driver: Driver, send: Callable[[], httpx2.Response], first: httpx2.Response, is_used: bool
) -> httpx2.Response:
    """The answer to the same request a second later, which is the same or a refusal."""
    driver.instance.clock.advance(1)
    if is_used:
        is_good(driver, first.json()["access_token"]["value"])
    answer = send()
    assert answer.content == first.content or not answer.is_success
    return answer


READ = incoming("read")
MANAGED = {"POST": ("9.2.7", 200), "DELETE": ("9.2.8", 204)}
ALL_ACTIONS = ("create", "complete", "read", "read-all", "list")
NO_LIMIT = "400 invalid_request field=access_token.access.limits"

ROWS: list[Row] = [
    # 2.7: the answer with the token
    keeps(
        "2.7.1 2.7.4 2.7.5 4.10.1 4.10.3 7.2 7.3 8.5 9.2.5",
        continued(),
        200,
        {"access_token.value": OPAQUE, "access_token.expires_in": 600, "continue.access_token.value": OPAQUE},
        GRANTED,
    ),
    keeps(
        "2.7.2 9.2.7 9.2.18",
        rotated_at_once(),
        200,
        {
            "access_token.manage": re.compile(r"http://.+/token/.+"),
            "access_token.expires_in": 600,
            "access_token.access": [READ],
        },
        ROTATED,
    ),
    keeps("9.2.7", rotated_twice(), 200, None, ROTATED),
    breaks("9.2.7", rotated_twice(is_used=True), "404 invalid_rotation"),
    *(
        keeps(rule, managed(method, sent), status)
        for method, (rule, status) in MANAGED.items()
        for sent in ("own", "none", "unknown", "continuation", "ended")
    ),
    *(breaks("2.7.2", managed(method, "other"), "401 invalid_token other_token") for method in MANAGED),
    *(
        breaks(rule, managed(method, sent, by="other"), "401 invalid_client signature_mismatch")
        for method, (rule, _) in MANAGED.items()
        for sent in ("own", "none")
    ),
    *(
        breaks(rule, managed(method, by="nobody"), "401 invalid_client missing_signature")
        for method, (rule, _) in MANAGED.items()
    ),
    keeps("2.7.4 2.7.8", continued(receiver="", debitAmount=usd(500), interval=INTERVAL), 200),
    keeps("2.7.8", continued(receiveAmount=usd(500)), 200),
    breaks("2.7.4 2.7.8", asked_for({"type": "outgoing-payment", "actions": ["create"]}), "400 invalid_request"),
    breaks(
        "2.7.4 2.7.8",
        asked_for(outgoing() | {"identifier": "http://127.0.0.1/spec-nobody"}),
        "400 invalid_request field=access_token.access.identifier",
    ),
    breaks("2.7.8", asked_for(outgoing(interval="monthly")), f"{NO_LIMIT}.interval"),
    breaks("2.7.8", asked_for(outgoing(interval="R/2026-01-01T00:00:00Z/PT0S")), f"{NO_LIMIT}.interval"),
    breaks("2.7.8", asked_for(outgoing(receiver="http://127.0.0.1/x")), f"{NO_LIMIT}.receiver"),
    breaks("2.7.8", asked_for(outgoing(debitAmount=usd(1) | {"assetCode": "EUR"})), f"{NO_LIMIT}.debitAmount"),
    breaks("2.7.8 9.3.5", asked_for(outgoing(debitAmount=usd(1), receiveAmount=usd(1))), "400 invalid_request"),
    keeps("9.2.4 9.3.5", asked_for(outgoing(debitAmount=usd(1))), 200, None, INTERACTING),
    keeps(
        "2.7.7 9.2.4",
        asked_for(incoming(*ALL_ACTIONS)),
        200,
        {"access_token.access": [incoming(*ALL_ACTIONS)]},
        GRANTED,
    ),
    keeps("2.7.7", asked_for(incoming("list-all") | {"identifier": "{alice}"}), 200, None, INTERACTING),
    *(
        breaks("2.7.7", asked_for(incoming(*actions)), "400 invalid_request")
        for actions in (["delete"], ["read", "read"], [], ["Create"])
    ),
    breaks("2.7.7", asked_for({"type": "incoming-payments", "actions": ["create"]}), "400 invalid_request"),
    # 8.3
    keeps(
        "8.3",
        asked_for(incoming("create"), incoming("read"), {"type": "quote", "actions": ["create"]}),
        200,
        {"access_token.access.2": dict},
    ),
    breaks("8.3", asked_for(*map(incoming, ("create", "read", "list", "complete"))), "400 invalid_request"),
    breaks("8.3", asked_for(incoming("create"), incoming("create")), "400 invalid_request field=access_token.access"),
    # 2.7.6, 4.10.5, 7.1, 8.4: waiting
    keeps("2.7.6 8.4 8.5", asked_patiently(), 200, {"continue.wait": 5}, INTERACTING),
    keeps("2.7.6 4.10.2 7.1 9.2.5", polled_after(6), 200, {"continue.wait": 5}, WAITING),
    keeps("4.10.5 7.1", polled_after(6, 6), 200, None, WAITING),
    keeps("4.10.5", redirected_at_once(), 200, None, GRANTED),
    breaks("2.7.6 4.10.5 7.1", polled_after(3), "400 too_fast", {"error.details.wait": int}),
    breaks("4.10.5 7.1", polled_after(6, 3), "400 too_fast", {"error.details.wait": int}),
    # 4.10.1: the interact_ref
    keeps("4.10.1", resumed_with_body(client="x"), 200, None, GRANTED),
    breaks("4.10.1 7.3", resumed("wrong"), "404 invalid_continuation"),
    keeps("4.10.1", resumed_twice(), 200, None, GRANTED),
    breaks("4.10.1 7.3", resumed_twice(is_used=True), "404 invalid_continuation"),
    breaks("4.10.1 7.3", resumed_with_reference_of_another(), "404 invalid_continuation"),
    breaks("4.10.1", resumed(None), "401 request_denied"),
    *(
        breaks("4.10.1 7.4", resumed_with_body(interact_ref=reference), "400 invalid_request field=interact_ref")
        for reference in (1, "", None, "x" * 257)
    ),
    # 4.10.2: polling
    keeps("4.10.2 4.10.4", continued(finish=False), 200, None, GRANTED),
    keeps("4.10.2", resumed(None, finish=False, is_approved=False), 200, {"access_token": ABSENT}),
    breaks("4.10.2", resumed(None, is_approved=False), "401 request_denied"),
    # 4.10.3: who continues
    breaks("4.10.3 7.2", resumed_by_other(), "401 invalid_client"),
    breaks("4.10.3 7.2", resumed_unsigned(), "401 invalid_client missing_signature"),
    breaks("4.10.3 7.2", resumed_with_token(None), "401 invalid_client missing_token"),
    breaks("4.10.3 7.3", resumed_with_token("x" * 43), "404 invalid_continuation"),
    *(breaks("7.3", resumed_at(f"/continue/{name}"), "404 invalid_continuation") for name in (NOBODY, "%00")),
    # 4.10.6: the time to continue
    keeps("4.10.6", resumed_after(59 * 60), 200, None, GRANTED),
    breaks("4.10.6", resumed_after(3600), "401 request_denied approval_expired"),
    # 4.10.4: the decision
    breaks("4.10.4", resumed_when_denied(), "401 user_denied"),
    breaks("4.10.4", resumed_when_nobody_decided_in_time(), "401 request_denied"),
    breaks("4.10.4", resumed("wrong", is_approved=False), "404 invalid_continuation"),
    keeps("9.1.1 9.1.2 9.2.6", cancelled(), 204),
    breaks("9.2.6", cancelled(times=2), "404 invalid_continuation"),
    breaks("4.10.4 7.3", cancelled(is_decided=False), "404 invalid_continuation"),
]


@table(ROWS)
def test_continuation(driver: Driver, row: Row) -> None:
    play(driver, row)
