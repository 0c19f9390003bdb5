"""What this server makes on other servers: who ends each thing, and that it does, whatever the other server answers."""

import ast
import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from payres.agenda.store.agenda import Agenda
from payres.core.process.worker import cancel_all
from payres.core.protocol.clock import DAY, HOUR, MINUTE, SECOND
from payres.core.remote.http import NOTHING, GuardedClient, RemoteEffect
from payres.core.store.events import Changes
from payres.core.store.incoming_payments import INCOMING, IncomingRecord
from payres.interledger.identity import OwnIdentity
from payres.interledger.remote_receivers import PAYING, RemoteReceivers
from payres.interledger.remote_resources import MOST_REFUSALS, end_remote_resource
from payres.interledger.store import remote_resources
from payres.testing.peering import peer
from tests.core.remote.conftest import Answer, Site
from tests.helpers import ROOT, TIMEOUT, wait_until
from tests.instance import Instance
from tests.interledger.network import check_books, network
from tests.interledger.node import Node, open_node
from tests.people.test_sending import Sender
from tests.test_architecture import MODULES, called, nodes

GRANT = Answer({"access_token": {"value": "T1", "expires_in": 600}, "continue": {}})
COMPLETE = "POST /incoming-payments/1/complete"
PAGES = {"public": "GET /incoming-payments/1", "grant": "POST /auth", "complete": COMPLETE}
FOREVER = 132  # attempts in 30 days
LEFT_ALONE = MOST_REFUSALS


# Who ends what


def declared() -> dict[str, RemoteEffect]:
    """All that requests make on other servers, by its names in the program."""
    found = {
        (module, target.id)
        for module in MODULES
        for node in nodes(module)
        if isinstance(node, ast.AnnAssign) and node.value is not None and called(node.value) == "RemoteEffect"
        for target in [node.target]
        if isinstance(target, ast.Name)
    }
    return {name: getattr(import_module(module[:-3].replace("/", ".")), name) for module, name in found}


def test_table_says_who_ends_what_is_made_on_other_servers() -> None:
    text = (ROOT / "docs/peering.md").read_text().partition("## What payres makes on other servers")[2]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", text.partition("\n## ")[0], re.MULTILINE)
    made = {RemoteEffect(*row) for row in rows[1:] if "`payres pay`" not in row[0]}
    assert made == {*declared().values()} - {NOTHING}


def test_requests_that_make_nothing_are_known() -> None:
    """A new request that makes something on another server has to say who ends it there."""
    claims = [
        module
        for module in MODULES
        for node in nodes(module)
        if isinstance(node, ast.keyword) and node.arg == "makes" and getattr(node.value, "id", "") == "NOTHING"
    ]
    assert sorted(claims) == ["payres/interledger/remote_receivers.py", "payres/webhooks/sender.py"]


async def test_request_that_does_not_say_what_it_makes_is_not_sent(site: Site) -> None:
    async with GuardedClient(allow_private_hosts=True) as http:
        with pytest.raises(AssertionError, match="who ends it"):
            await http.request("POST", site.base)
    assert not site.requests


# Between two servers


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Instance]]:
    with network(tmp_path_factory.mktemp("elsewhere"), "a", "b") as (a, b):
        peer(a, b)
        yield a, b
        check_books(a, b)


def made_by(a: Instance, b: Instance) -> Sequence[IncomingRecord]:
    """What the first server has made at the second, newest first."""
    of = "WHERE client_id = (SELECT id FROM client WHERE identity = ?) ORDER BY id DESC"
    return b.read(lambda work: INCOMING.list(work, of, f"{a.base_url}/.well-known/pay"))


@pytest.mark.parametrize(("fixed", "wanted"), [("send", None), ("receive", "700")])
def test_bill_is_completed_when_its_payment_has_ended(pair: Sequence[Instance], fixed: str, wanted: str | None) -> None:
    a, b = pair
    with Sender(a) as sender:
        sender.price(b.wallet("bob"), "7.00", fixed)
        paid = sender.pay(sender.price(b.wallet("bob"), "7.00", fixed))
    wait_until(lambda: made_by(a, b)[0].completed)
    done, priced = made_by(a, b)[:2]
    assert (done.incoming_value, done.received) == (wanted, 700), paid
    assert (priced.incoming_value, priced.received, priced.completed) == (wanted, 0, False)
    settings = a.context.settings
    lifetime = max(settings.interaction_lifetime, settings.quote_lifetime) * SECOND + PAYING
    assert lifetime - MINUTE < priced.expires_at - priced.created_at <= lifetime + MINUTE
    wait_until(lambda: not a.read(lambda work: remote_resources.REMOTE_RESOURCES.list(work, "")))


# What the other server may answer


@pytest.fixture
async def receivers(node: Node) -> AsyncIterator[RemoteReceivers]:
    async with GuardedClient(allow_private_hosts=True) as http:
        yield receivers_of(node, http)


def receivers_of(node: Node, http: GuardedClient) -> RemoteReceivers:
    return RemoteReceivers(http, OwnIdentity("https://pay.example/.well-known/pay", bytes(32), node.clock), node.clock)


async def attempts(node: Node, receivers: RemoteReceivers) -> int:
    """How often it is tried to end what was noted as `made`, each time when it is due."""
    count = 0
    while record := await node.database.read(lambda work: remote_resources.REMOTE_RESOURCES.get(work, "made")):
        assert record.due_at is not None
        node.clock.advance(max(record.due_at - node.clock.now(), 0) / SECOND)
        await end_remote_resource(node.database, receivers, "made")
        count += 1
    return count


def bill(site: Site, **answers: Answer | list[Answer]) -> str:
    """An incoming payment that is completed, or has other answers."""
    usual: dict[str, Answer | list[Answer]] = {
        "public": Answer({"authServer": f"{site.base}/auth"}),
        "grant": GRANT,
        "complete": Answer({}),
    }
    site.pages |= {PAGES[name]: answer for name, answer in (usual | answers).items()}
    return f"{site.base}/incoming-payments/1"


@pytest.mark.parametrize(
    ("step", "status", "times"),
    [
        *(("public", status, 1) for status in (401, 404, 410)),
        *(("public", status, LEFT_ALONE) for status in (302, 403)),
        ("public", 503, FOREVER),
        *(("grant", status, LEFT_ALONE) for status in (400, 401, 403, 404)),
        ("grant", 429, FOREVER),
        *(("complete", status, 1) for status in (200, 404, 409, 410)),
        *(("complete", status, LEFT_ALONE) for status in (302, 400, 401, 403)),
        ("complete", 500, FOREVER),
        ("public", [*[503] * 8, 403, 404], 10),  # the first refusal after an outage is not the eighth
        ("public", [*[403] * 7, 503, *[403] * 8], 16),
    ],
)
async def test_bill_is_completed_or_left_to_expire(
    node: Node, receivers: RemoteReceivers, site: Site, step: str, status: int | list[int], times: int
) -> None:
    began = node.clock.now()
    answer = [Answer({}, one) for one in status] if isinstance(status, list) else Answer({}, status)
    await node.write(
        partial(remote_resources.note_bill, payment_id="made", url=bill(site, **{step: answer}), now=began)
    )
    await node.write(partial(remote_resources.make_due, id="made", now=began))
    assert await attempts(node, receivers) == times
    assert node.clock.now() - began <= {1: 0, LEFT_ALONE: HOUR}.get(times, 30 * DAY + 6 * HOUR)
    assert not await node.write(lambda work: work.execute("SELECT * FROM made_elsewhere").fetchall())


async def test_bill_that_its_server_gave_to_two_payments_is_completed_after_both(
    node: Node, receivers: RemoteReceivers, site: Site
) -> None:
    url = bill(site)
    for id in ("one", "made"):
        await node.write(partial(remote_resources.note_bill, payment_id=id, url=url, now=node.clock.now()))
    await node.write(partial(remote_resources.make_due, id="one", now=node.clock.now()))
    await end_remote_resource(node.database, receivers, "one")
    assert not site.requests
    await node.write(partial(remote_resources.make_due, id="made", now=node.clock.now()))
    assert await attempts(node, receivers) == 1
    assert [request.target for request in site.requests].count("/incoming-payments/1/complete") == 1
    assert not await node.database.read(lambda work: remote_resources.REMOTE_RESOURCES.list(work, ""))


async def test_clock_that_was_far_ahead_leaves_no_bill_open(node: Node, receivers: RemoteReceivers, site: Site) -> None:
    made = partial(
        remote_resources.note_bill, payment_id="made", url=bill(site, complete=Answer({}, 503)), now=node.clock.now()
    )
    await node.write(made)
    await node.write(partial(remote_resources.make_due, id="made", now=node.clock.now()))
    node.clock.advance(40 * DAY / SECOND)
    await end_remote_resource(node.database, receivers, "made")
    node.clock.advance(-40 * DAY / SECOND)
    bill(site)
    assert await attempts(node, receivers) == 1


async def test_token_for_completing_is_kept_like_those_for_reading(
    node: Node, receivers: RemoteReceivers, site: Site
) -> None:
    url = bill(site)
    for _ in range(2):
        await receivers.complete(url)
    site.pages[COMPLETE] = [Answer({}, 401), Answer({})]
    await receivers.complete(url)
    steps = {page.partition(" ")[2]: name for name, page in PAGES.items()}
    asked = "public grant complete, public complete, public complete grant complete"
    assert [steps[request.target] for request in site.requests] == asked.replace(",", "").split()
    assert b'"actions":["complete"]' in site.requests[1].body


@pytest.mark.parametrize(
    ("answer", "times"),
    [
        *((Answer(b"", status), 1) for status in (200, 204, 404, 410)),
        (Answer({"error": {"code": "invalid_continuation", "description": "invalid grant"}}, 401), 1),
        (Answer({"error": {"code": "unknown_continuation"}}, 401), 1),
        *((Answer({"error": {"code": "invalid_client"}}, status), LEFT_ALONE) for status in (400, 401, 403)),
        (Answer({"error": "invalid_continuation"}, 400), 1),
        *((Answer(b"upstream of cancel_continuation timed out", status), FOREVER) for status in (429, 500, 503)),
        *((Answer({"error": {"code": "invalid_continuation"}}, status), FOREVER) for status in (429, 503)),
        (Answer(b"upstream of cancel_continuation timed out", 401), LEFT_ALONE),
        (Answer({"error": {"code": "invalid_continuation"}}, 403), LEFT_ALONE),
    ],
)
async def test_grant_is_cancelled_or_left_to_expire(
    node: Node, receivers: RemoteReceivers, site: Site, answer: Answer, times: int
) -> None:
    site.pages["DELETE /continue/1"] = answer
    now = node.clock.now()
    note = partial(
        remote_resources.note_grant, id="made", url=f"{site.base}/continue/1", token="in-clear", now=now, due_at=now
    )
    await node.write(note)
    [row] = await node.write(lambda work: work.execute("SELECT * FROM made_elsewhere").fetchall())
    assert "in-clear" not in repr(row)
    assert await attempts(node, receivers) == times
    assert {request.headers["authorization"] for request in site.requests} == {"GNAP in-clear"}


@pytest.mark.parametrize("token", ["t\u20ac", "t\u00e9", "a\nb", "\x00"])
async def test_token_that_fits_into_no_header_ends_as_a_refusal_does(
    node: Node, receivers: RemoteReceivers, site: Site, token: str
) -> None:
    now = node.clock.now()
    url = f"{site.base}/continue/1"
    await node.write(partial(remote_resources.note_grant, id="made", url=url, token=token, now=now, due_at=now))
    assert (await attempts(node, receivers), site.requests) == (LEFT_ALONE, [])


async def test_what_was_not_ended_before_a_crash_is_ended_after_it(tmp_path: Path, site: Site) -> None:
    url = bill(site, complete=Answer({}, 503))
    async with GuardedClient(allow_private_hosts=True) as http:
        async with open_node(tmp_path / "node.db") as node:
            now = node.clock.now()
            await node.write(partial(remote_resources.note_bill, payment_id="made", url=url, now=now))
            await node.write(partial(remote_resources.make_due, id="made", now=now))
            await end_remote_resource(node.database, receivers_of(node, http), "made")
        site.pages[COMPLETE] = Answer({})
        async with open_node(tmp_path / "node.db") as node:
            node.clock.advance(10)
            ended, again = asyncio.Event(), receivers_of(node, http)

            async def end(id: str) -> None:
                await end_remote_resource(node.database, again, id)
                ended.set()

            running = asyncio.create_task(Agenda(remote_resources.DUE, node.database, Changes(), end).run())
            async with asyncio.timeout(TIMEOUT):
                await ended.wait()
            await cancel_all([running])
            assert not await node.database.read(lambda work: remote_resources.REMOTE_RESOURCES.list(work, ""))
    assert [request.target for request in site.requests].count("/incoming-payments/1/complete") == 2
