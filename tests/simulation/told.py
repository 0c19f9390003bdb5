"""Events, by the journals of those who did what they tell: none is missing, none is extra, and they say what was so."""

import json
from collections.abc import Iterator
from typing import Any, Final

from payres.core.protocol.clock import DAY, SECOND
from tests.simulation.foreign_book import amount_of
from tests.simulation.server import Server
from tests.simulation.town import Told, Town, moment_of
from tests.simulation.world import Violation

RECENT: Final = 20 * DAY  # in which no event is purged
SLACK: Final = 40 * SECOND  # by which a server's clock may have been ahead or behind since
EVENTS: Final = "SELECT type, subject, data FROM event ORDER BY sequence"
# What has no reference of an operator's and may come again; the others are there once for each subject or reference.
OFTEN: Final = ("incoming_payment.partial_payment_received", "liquidity.low", "peer.credit_low", "refund.completed")
OPERATORS: Final = ("refund.", "wallet.")  # what operators did, with references
TIMES: Final = {True: (1,), False: (0,), None: (0, 1)}  # by whether it was made
PARTS: Final = tuple(range(1, 100))  # in which a refund may go back to several payers
MOVED: Final = {"deposit": "wallet.deposited", "withdrawal": "wallet.withdrawn"}
# Payments that have not exactly the events of what they came to, with how often each is there.
OUTGOING_TOLD: Final = (
    "SELECT p.id, name, (SELECT count(*) FROM event WHERE subject = p.id AND type = name) AS times"
    " FROM outgoing_payment p, (SELECT 'outgoing_payment.' || column1 AS name, column1 AS stage"
    " FROM (VALUES ('created'), ('completed'), ('failed')))"
    " WHERE times <> (stage IN ('created', p.state))"
)
INCOMING_TOLD: Final = (
    "SELECT p.id, name, (SELECT count(*) FROM event WHERE subject = p.id AND type = name) AS times"
    " FROM incoming_payment p, (SELECT ? AS now), (SELECT 'incoming_payment.' || column1 AS name, column1 AS stage"
    " FROM (VALUES ('created'), ('completed'), ('expired'), ('partial_payment_received'))) WHERE CASE stage"
    " WHEN 'created' THEN times <> 1 WHEN 'completed' THEN times <> (p.completed_at NOTNULL)"
    f" WHEN 'expired' THEN times > (p.expires_at < now + {SLACK})"
    f" OR times < (p.completed_at IS NULL AND p.expires_at < now - {SLACK})"
    # A bill that is open briefly may be both, as clocks go.
    f" OR times > (p.completed_at IS NULL OR p.expires_at < p.created_at + {SLACK})"
    " ELSE times < (p.received > 0 AND p.completed_at IS NULL) END"
)


async def told(town: Town) -> None:
    """9. What was acknowledged, and every payment, has its events, and they say what people were answered."""
    found: dict[tuple[str, str, str | None], list[Any]] = {}
    for server in town.servers:
        wrong = [*await server.rows(OUTGOING_TOLD), *await server.rows(INCOMING_TOLD, server.now())]
        if wrong := [row for row in wrong if _is_kept(town, server, moment_of(row[0]))]:
            raise Violation(f"events of {server.name}, and how often they are there: {wrong[:5]}")
        for kind, subject, text in await server.rows(EVENTS):
            data = json.loads(text)
            about = subject if kind != "refund.completed" else data["reference"]
            found.setdefault((server.name, kind, about or data.get("reference")), []).append(data)
    expected = list(_expected(town))
    known = {one.about for one in expected}
    for (name, kind, about), events in found.items():
        is_known = about in known if kind.startswith(OPERATORS) and about else not kind.startswith("webhook.")
        if not is_known or (len(events) > 1 and about and kind not in OFTEN):
            raise Violation(f"{kind} of {name} is there {len(events)} times: {events}")
    for one in expected:
        events = found.get((one.server.name, one.type, one.about), [])
        is_wrong = len(events) not in one.times or any(data | one.facts != data for data in events)
        if is_wrong and _is_kept(town, one.server, one.at) and not one.server.has_lost(one.at):
            raise Violation(f"{one.type} of {one.about} at {one.server.name} is {events}: {one.times} {one.facts}")


def _is_kept(town: Town, server: Server, at: int) -> bool:
    """Whether no event of what was done then is old, nor may have seemed so to a clock that was far ahead."""
    return at > town.world.microseconds - RECENT and not server.may_have_purged(at)


def _expected(town: Town) -> Iterator[Told]:
    """What the journals say."""
    yield from town.told
    for grant in [grant for app in town.apps for grant in app.allowances]:
        yield Told(grant.wallet.server, grant.given, "grant.revoked", grant.id, grant.cancelled)
    for bill, received in town.completed.items():
        facts = {"walletAddress": bill.wallet.url, "receivedAmount": amount_of(received, bill.wallet.asset)}
        yield Told(bill.wallet.server, moment_of(bill.id), "incoming_payment.completed", bill.id, facts=facts)
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
