"""What tests see of what has happened in a sandbox."""

from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

from tests.helpers import Json, usd, wait_until
from tests.testing.sandboxes import Sandbox


def seen(sandbox: Sandbox, **wanted: object) -> Json:
    found: Json = sandbox.ask("GET", f"/events?{urlencode(wanted)}")
    return found


def kinds(answer: Json) -> list[str]:
    return [event["type"] for event in answer["events"]]


def test_events_since_the_baseline(sandbox: Sandbox) -> None:
    sandbox.ask("POST", "/consent-rules", {"decision": "approve"})
    bill = sandbox.app.create_incoming_payment(sandbox.bob, usd(500))
    start = seen(sandbox)
    assert kinds(start) == ["incoming_payment.created"]
    assert start["events"][0]["data"]["id"] == bill["id"]
    sandbox.app.pay(sandbox.alice, bill["id"])
    both = ["outgoing_payment.created", "outgoing_payment.completed"]
    table: list[tuple[Json, list[str]]] = [
        ({"type": "incoming_payment.*"}, ["incoming_payment.completed"]),
        ({"type": "outgoing_payment.*", "count": 2}, both),
        ({"wallet": "bob"}, ["incoming_payment.completed"]),
        ({"wallet": "alice", "type": "outgoing_payment.*"}, both),
        ({"wallet": sandbox.bob}, ["incoming_payment.completed"]),
        ({"wallet": "shop", "wait": 0}, []),
        ({"type": "wallet.deposited", "wait": 0.01}, []),
    ]
    for wanted, expected in table:
        answer = seen(sandbox, after=start["cursor"], **wanted)
        assert (sorted(kinds(answer)), answer["timed_out"]) == (sorted(expected), not expected), wanted
        assert kinds(seen(sandbox, after=answer["cursor"], wait=0)) == []


def refused_when_reset(sandbox: Sandbox, target: str) -> tuple[int, str]:
    """How a call is ended, which may have come just during a reset."""
    while (refused := sandbox.refused("GET", target, None))[0] == 503:
        pass
    return refused


def test_waits_for_as_many_events_as_are_wanted_and_until_a_reset(sandbox: Sandbox) -> None:
    with ThreadPoolExecutor() as others:
        waiting = others.submit(seen, sandbox, count=2, wait=30, type="incoming_payment.created")
        for wallet in (sandbox.bob, sandbox.alice):
            sandbox.app.create_incoming_payment(wallet)
        assert len(waiting.result()["events"]) == 2
        cursor = waiting.result()["cursor"]
        ended = others.submit(refused_when_reset, sandbox, f"/events?after={cursor}&wait=30")
        wait_until(lambda: sandbox.ask("POST", "/reset", {}) and ended.done())
        assert ended.result() == (409, "wrong_state")
    assert sandbox.refused("GET", f"/events?after={cursor}", None) == (409, "wrong_state")


def test_unknown_parameters_are_refused_with_the_names_of_those_there_are(sandbox: Sandbox) -> None:
    generation = sandbox.ask("GET", "/")["generation"]
    for target, hint in [
        ("/events?colour=red", "The parameters are: after, type, wallet, count, wait"),
        ("/clock?colour=red", "The parameters are: none"),
        ("/events?wait=x", "The parameters are: after, type, wallet, count, wait"),
        ("/events?count=0", "The parameters are: after, type, wallet, count, wait"),
        ("/events?type=payment", "webhook.test"),
        ("/events?type=liquidity.low&wallet=bob", "wallet.deposited, wallet.withdrawn, peer.packet_unresolved"),
        ("/events?wallet=carol", "alice, bob, shop"),
        ("/requests?wallet=carol", "alice, bob, shop"),
        ("/requests?client=bob", "/shop"),
        ("/requests?operation=create-bill", "get-wallet-address-did-document"),
        ("/requests?fault=lost", "partial_failure"),
        ("/requests?status=99", "The parameters are: after, operation, client, wallet, status, fault, wait"),
        ("/requests?after=9999-1", "after is the cursor of an earlier answer"),
        (f"/requests?after={generation}-999999", "after is the cursor of an earlier answer"),
        (f"/events?after={generation}-999999", "after is the cursor of an earlier answer"),
        ("/events?after=x", "after is the cursor of an earlier answer"),
        ("/events?after=1-", "after is the cursor of an earlier answer"),
        ("/events?wait=1&wait=2", "Give wait once"),
    ]:
        answer = sandbox.control.get(target)
        assert answer.status_code == 400, target
        assert answer.json()["error"]["details"]["hint"].endswith(hint)
