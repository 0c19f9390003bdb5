"""Events, by the journals of those who did what they tell: none is missing, none is extra, and they say what was so."""

import json
import math
from collections.abc import Collection, Iterator
from typing import Any, Final

from payres.core.protocol.clock import DAY, SECOND
from tests.simulation.foreign_book import amount_of
from tests.simulation.server import Server
from tests.simulation.town import Bill, Told, Town, moment_of
from tests.simulation.world import Violation

RECENT: Final = 20 * DAY  # in which no event is purged
SLACK: Final = 40 * SECOND  # by which a server's clock may have been ahead or behind since
EVENTS: Final = "SELECT type, subject, data FROM event ORDER BY sequence"
# What has no reference of an operator's and may come again; the others are there once for each subject or reference.
OFTEN: Final = ("incoming_payment.partial_payment_received", "liquidity.low", "peer.credit_low", "refund.completed")
OPERATORS: Final = ("refund.", "wallet.")  # what operators did, with references
TIMES: Final = {True: (1,), False: (0,), None: (0, 1)}  # by whether it was made
GOT: Final = (
    "SELECT i.id, sum(t.amount) FROM transfer t JOIN incoming_payment i ON i.id = t.incoming_payment_id JOIN"
    " wallet_address w ON w.id = i.wallet_address_id WHERE t.credit_account_id = w.account_id GROUP BY i.id"
)
PARTS: Final = tuple(range(1, 100))  # in which a refund may go back to several payers
MOVED: Final = {"deposit": "wallet.deposited", "withdrawal": "wallet.withdrawn"}
# Payments that have not exactly the events of what they came to.
OUTGOING_TOLD: Final = (
    "SELECT p.id, name, (SELECT count(*) FROM event WHERE subject = p.id AND type = name) AS times"
    " FROM outgoing_payment p, (SELECT 'outgoing_payment.' || column1 AS name, column1 AS stage"
    " FROM (VALUES ('created'), ('completed'), ('failed')))"
    " WHERE times <> (stage IN ('created', p.state))"
)
INCOMING_TOLD: Final = (
    "SELECT p.id, name, (SELECT count(*) FROM event WHERE subject = p.id AND type = name) AS times"
    " FROM incoming_payment p, (SELECT 'incoming_payment.' || column1 AS name, column1 AS stage FROM"
    " (VALUES ('created'), ('completed'), ('partial_payment_received'))) WHERE CASE stage"
    " WHEN 'created' THEN times <> 1 WHEN 'completed' THEN times <> (p.completed_at NOTNULL)"
    " ELSE times < (p.received > 0 AND p.completed_at IS NULL) END"
)


async def told(town: Town) -> None:
    """9. What was acknowledged, and every payment, has its events, and they say what people were answered."""
    found: dict[tuple[str, str, str | None], list[Any]] = {}
    got: dict[str, int] = {}
    for server in town.servers:
        wrong = [row for sql in (OUTGOING_TOLD, INCOMING_TOLD) for row in await server.rows(sql)]
        if wrong := [row for row in wrong if _is_kept(town, server, moment_of(row[0]))]:
            raise Violation(f"events of {server.name}, and how often they are there: {wrong[:5]}")
        got.update(await server.rows(GOT))
        for kind, subject, text in await server.rows(EVENTS):
            data = json.loads(text)
            about = subject if kind != "refund.completed" else data["reference"]
            found.setdefault((server.name, kind, about or data.get("reference")), []).append(data)
    done = {about for _, kind, about in found if kind == "incoming_payment.completed"}
    paid = (one for one in town.bills if one in town.completed or got.get(one.id, 0) >= (one.value or math.inf))
    done |= {bill.id for bill in paid}
    expected = list(_expected(town, done))
    known = {one.about for one in expected}
    for (name, kind, about), events in found.items():
        is_known = about in known if kind.startswith(OPERATORS) and about else not kind.startswith("webhook.")
        if not is_known or (len(events) > 1 and about and kind not in OFTEN):
            raise Violation(f"{kind} of {name} is there {len(events)} times: {events}")
    for one in expected:
        events = found.get((one.server.name, one.type, one.about), [])
        if _is_kept(town, one.server, one.at) and not one.server.has_lost(one.at):
            _check(one, events)


def _is_kept(town: Town, server: Server, at: int) -> bool:
    """Whether no event of what was done then is old, nor may have seemed so to a clock that was far ahead."""
    return at > town.world.microseconds - RECENT and not server.may_have_purged(at)


def _check(one: Told, events: list[Any]) -> None:
    wrong = [data for data in events for key, fact in one.facts.items() if data.get(key) != fact]
    if len(events) not in one.times or wrong:
        wanted = f"{one.times} {one.facts}"
        raise Violation(f"{one.type} of {one.about} at {one.server.name}: {events}, and should be {wanted}")


def _expected(town: Town, done: Collection[str | None]) -> Iterator[Told]:
    """What the journals say, with the bills that are `done`: paid or completed."""
    yield from town.told
    for app in town.apps:
        for grant in app.allowances:
            yield Told(grant.wallet.server, grant.given, "grant.revoked", grant.id, grant.cancelled)
    for bill in town.bills:
        yield from _of_bill(bill, done, town.completed.get(bill))
    for sent in town.sent:
        facts = {"walletAddress": sent.wallet.url, "debitAmount": amount_of(sent.terms[0], sent.wallet.asset)}
        yield Told(sent.wallet.server, moment_of(sent.id), "outgoing_payment.created", sent.id, facts=facts)
    for moved in town.movements:
        url = f"{moved.server.base_url}/{moved.account.removeprefix('/wallets/')}"
        facts = {"walletAddress": url, "amount": amount_of(moved.amount, moved.asset)}
        if moved.account.startswith("/wallets/"):
            yield Told(moved.server, moved.asked_at, MOVED[moved.kind], moved.reference, TIMES[moved.is_made], facts)
    for refund in town.refunds:
        times = (0, 1) if refund.goes_elsewhere else {True: PARTS, False: (0,), None: (0, *PARTS)}[refund.is_made]
        facts = {"incomingPayment": f"{refund.server.base_url}/incoming-payments/{refund.payment}"}
        yield Told(refund.server, refund.asked_at, "refund.completed", refund.reference, times, facts)


def _of_bill(bill: Bill, done: Collection[str | None], received: int | None) -> Iterator[Told]:
    server, facts = bill.wallet.server, {"id": bill.url, "walletAddress": bill.wallet.url}
    asked = {} if bill.value is None else {"incomingAmount": amount_of(bill.value, bill.wallet.asset)}
    yield Told(server, moment_of(bill.id), "incoming_payment.created", bill.id, facts=facts | asked)
    got = {} if received is None else {"receivedAmount": amount_of(received, bill.wallet.asset)}
    times: tuple[int, ...] = (1,) if bill.id in done else (0,)
    yield Told(server, moment_of(bill.id), "incoming_payment.completed", bill.id, times, facts | got)
    over = server.now() - bill.expires_at
    if bill.id in done:  # a bill that is open briefly may be both, as clocks go
        times = (0,) if bill.seconds > SLACK // SECOND else (0, 1)
    else:
        times = (1,) if over > SLACK else (0, 1) if over > -SLACK else (0,)
    yield Told(server, moment_of(bill.id), "incoming_payment.expired", bill.id, times, facts | asked)
