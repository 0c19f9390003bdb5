"""Exchange rates of a service: which answers are used, and what happens when rates expire."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import pytest

from payres.core.protocol.clock import SECOND
from payres.core.remote.connection import FetchFailed
from payres.core.remote.http import GuardedClient
from payres.core.remote.transport import Bounds
from payres.core.store import accounts
from payres.core.store.accounts import RateRecord
from payres.core.store.connections import connect_writer
from payres.core.store.database import Database
from payres.interledger import rates
from payres.interledger.rates import fetch_rates, refresh_rates, watch_rates
from payres.operator.assets import deposit_liquidity
from payres.testing.clock import MovableClock
from tests.core.remote.conftest import Answer, Elapse, Request, Site
from tests.helpers import TIMEOUT, receiver_of, refusal, settle, usd
from tests.http_server import reply, serving
from tests.instance import Instance, run_instance

NOW = 1_700_000_000 * SECOND
MAX_AGE = 300
UNTIL = NOW + MAX_AGE * SECOND
MARKET = {"USD": {"EUR": "0.92", "JPY": "150.25"}, "EUR": {"USD": "1.09", "JPY": "163"}, "JPY": {"USD": "6.7e-3"}}


@pytest.fixture
async def http() -> AsyncIterator[GuardedClient]:
    async with GuardedClient(allow_private_hosts=True) as client:
        yield client


def rates_body(base: str, rates: dict[str, str]) -> bytes:
    """An answer with these numbers, digit by digit."""
    members = ",".join(f"{json.dumps(counter)}: {number}" for counter, number in rates.items())
    return f'{{"base": {json.dumps(base)}, "rates": {{{members}}}, "updated": 1.5}}'.encode()


def said_of(target: str) -> bytes:
    """What the market answers."""
    (base,) = parse_qs(urlsplit(target).query)["base"]
    return rates_body(base, MARKET[base])


def market(request: Request) -> Answer:
    return Answer(said_of(request.target))


async def fetched(http: GuardedClient, site: Site, body: object, *counters: str) -> dict[str, str]:
    site.pages["GET /rates?base=USD"] = Answer(body)
    return await fetch_rates(http, f"{site.base}/rates", "USD", counters or ("EUR",))


EXACT = ("0.9", "1", "0.1000000000000000055511151231257827", f"{'1234567890' * 3}.123456789", "0." + "1" * 62)
WITH_EXPONENT = {"9.2E-1": "0.92", "1.5e+3": "1500", "12e2": "1200", "1e-7": "0.0000001"}


async def test_number_is_taken_digit_by_digit(http: GuardedClient, site: Site) -> None:
    for number, rate in [*zip(EXACT, EXACT, strict=True), *WITH_EXPONENT.items()]:
        assert await fetched(http, site, rates_body("USD", {"EUR": number})) == {"EUR": rate}


async def test_what_is_no_rate_is_left_out(http: GuardedClient, site: Site, caplog: pytest.LogCaptureFixture) -> None:
    for number in (
        *("0", "0.0", "0e5", "-0.9", "-1", "1e999", "1e-999", "1e61", "1e-62", "1" * 65, "0." + "1" * 63, "9" * 10_000),
        *("null", "true", '"0.9"', '"NaN"', "[0.9]", '{"value": 0.9}'),
    ):
        body = rates_body("USD", {"EUR": number, "JPY": "150", "USD": "1", "DOGE": "7"})
        assert await fetched(http, site, body, "EUR", "JPY", "CHF") == {"JPY": "150"}, number
        assert "no usable rate from USD to EUR" in caplog.text
        caplog.clear()


async def test_what_is_no_answer_fails(http: GuardedClient, site: Site) -> None:
    for body in (
        *(b"", b"<html>", b"[]", b"{}", b"[" * 60_000),
        *(rates_body(base, {"EUR": "0.9"}) for base in ("EUR", "usd")),
        *({"rates": {"EUR": 0.9}}, {"base": "USD"}, {"base": "USD", "rates": [0.9]}, {"base": "USD", "rates": None}),
        *(b'{"base": "USD", "rates": {"EUR": %s' % rest for rest in (b"NaN}}", b"Infinity}}", b"0.9}")),
    ):
        with pytest.raises(FetchFailed) as failure:
            await fetched(http, site, body)
        assert failure.value.reason == "bad_content", body


async def test_other_status_fails_without_telling_the_url(http: GuardedClient, site: Site) -> None:
    for status in (204, 302, 404, 500):
        site.pages["GET /rates?key=k&base=USD"] = Answer(b"", status, {"Location": f"{site.base}/elsewhere"})
        with pytest.raises(FetchFailed) as failure:
            await fetch_rates(http, f"{site.base}/rates?key=k", "USD", ["EUR"])
        assert failure.value.sentence == f"The rates service answered {status} instead of 200"
    assert {request.target for request in site.requests} == {"/rates?key=k&base=USD"}


async def test_base_is_escaped(http: GuardedClient, site: Site) -> None:
    site.pages["GET /rates?base=A%26B%3D"] = Answer(rates_body("A&B=", {"EUR": "2"}))
    assert await fetch_rates(http, f"{site.base}/rates", "A&B=", ["EUR"]) == {"EUR": "2"}


class Desk:
    """A database with some currencies, and a market to ask."""

    def __init__(self, database: Database, http: GuardedClient, url: str) -> None:
        self.database = database
        self.clock = MovableClock(NOW, frozen=True)
        self.asking = database, http, self.clock, url, MAX_AGE

    async def trade(self, *codes: str, scale: int = 2) -> None:
        for code in codes:
            await self.database.write(partial(accounts.ensure_asset, code=code, scale=scale))

    async def refresh(self) -> dict[str, RateRecord]:
        """The rates that there are afterwards."""
        await refresh_rates(*self.asking)
        found = await self.database.read(accounts.list_rates)
        return {f"{rate.base}/{rate.counter}": rate for rate in found}


@pytest.fixture
async def desk(tmp_path: Path, site: Site) -> AsyncIterator[Desk]:
    for base in MARKET:
        site.pages[f"GET /rates?base={base}"] = market
    async with GuardedClient(allow_private_hosts=True, bounds=Bounds(seconds=TIMEOUT)) as client:
        database = await Database.open(str(tmp_path / "payres.db"))
        yield Desk(database, client, f"{site.base}/rates")
        await database.close()


async def test_refresh_asks_for_every_currency_in_use(desk: Desk, site: Site) -> None:
    for codes in ((), ("USD",)):
        await desk.trade(*codes)
        assert (await desk.refresh(), site.requests) == ({}, []), "nothing is exchanged"
    await desk.trade("EUR", "JPY")
    await desk.trade("USD", scale=9)
    found = await desk.refresh()
    assert {pair: rate.rate for pair, rate in found.items()} == {
        "USD/EUR": "0.92",
        "USD/JPY": "150.25",
        "EUR/USD": "1.09",
        "EUR/JPY": "163",
        "JPY/USD": "0.0067",
    }
    assert {(rate.set_at, rate.expires_at) for rate in found.values()} == {(NOW, UNTIL)}
    assert len(site.requests) == 3


async def test_refresh_renews_what_it_wrote_from_the_moment_of_the_question_on(desk: Desk, site: Site) -> None:
    await desk.trade("USD", "EUR")
    await desk.refresh()
    desk.clock.advance(75)

    async def dawdle() -> None:
        desk.clock.advance(3)

    site.pages["GET /rates?base=USD"] = Answer(rates_body("USD", MARKET["USD"]), pause=dawdle)
    rate = (await desk.refresh())["USD/EUR"]
    assert (rate.set_at, rate.expires_at) == (NOW + 75 * SECOND, UNTIL + 75 * SECOND)


@pytest.mark.parametrize(
    "bad", [Answer(b"", 500), Answer(b"{"), Answer(b" " * 70_000), "silence"], ids=["status", "syntax", "size", "time"]
)
async def test_failure_for_one_base_leaves_the_others(
    desk: Desk, site: Site, bad: Answer | Literal["silence"], elapse: Elapse, caplog: pytest.LogCaptureFixture
) -> None:
    async def say_nothing() -> None:
        elapse(TIMEOUT)
        await asyncio.Event().wait()

    await desk.trade("USD", "EUR")
    for base, other in (("USD", "EUR"), ("EUR", "USD")):  # the first that is asked for, and the last
        pages = {f"GET /rates?base={other}": market}
        site.pages |= {**pages, f"GET /rates?base={base}": Answer(pause=say_nothing) if bad == "silence" else bad}
        await desk.database.write(lambda tx: tx.execute("DELETE FROM exchange_rate") and None)
        assert list(await desk.refresh()) == [f"{other}/{base}"]
        assert f"no exchange rates from {base}" in caplog.text


async def test_refresh_leaves_what_the_operator_set(desk: Desk) -> None:
    await desk.trade("USD", "EUR", "JPY")
    await desk.database.write(lambda tx: accounts.set_rate(tx, "USD", "EUR", "0.5", 1))
    found = await desk.refresh()
    assert found["USD/EUR"] == RateRecord("USD", "EUR", "0.5", 1, None)
    assert found.keys() == {"USD/EUR", "USD/JPY", "EUR/JPY", "JPY/USD"}, "the way back is the inverse of what is set"


async def test_rates_are_refreshed_again_and_again_also_after_a_fault(
    desk: Desk, elapse: Elapse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rounds = 0

    async def refresh(*_: object) -> None:
        nonlocal rounds
        rounds += 1
        if rounds < 3:
            raise RuntimeError("out of order")

    monkeypatch.setattr(rates, "refresh_rates", refresh)
    with caplog.at_level(logging.ERROR):
        task = asyncio.create_task(watch_rates(*desk.asking))
        for expected in (1, 2, 3, 4):
            await settle()
            assert rounds == expected
            elapse(MAX_AGE / 4 - 1)
            await settle()
            assert rounds == expected
            elapse(1)
    task.cancel()
    assert "out of order" in caplog.text


def quote(instance: Instance) -> Any:
    sender, receiver = instance.wallet("alice"), receiver_of(instance, wallet="dora")
    token = instance.client.grant({"type": "quote", "actions": ["create"], "identifier": sender})
    body = {"walletAddress": sender, "receiver": receiver, "method": "ilp", "debitAmount": usd(1000)}
    return instance.client.post("/quotes", body, token)


def test_server_quotes_at_the_rates_of_the_service_while_they_are_fresh(tmp_path: Path) -> None:
    with closing(connect_writer(str(tmp_path / "payres.db"))) as connection:
        for code in ("EUR", "USD"):
            accounts.ensure_asset(connection, code, 2)
    with (
        serving(lambda handler: reply(handler, 200, said_of(handler.path))) as port,
        run_instance(tmp_path / "payres.db", rates_url=f"http://127.0.0.1:{port}/rates") as instance,
    ):
        instance.create_wallet("dora", asset="EUR")
        instance.write(lambda work: deposit_liquidity(work, "EUR", 2, "9.20"))
        for _ in range(10_000):
            if instance.read(accounts.list_rates):
                break
        answer = quote(instance)
        assert answer.status_code == 201, answer.text
        assert answer.json()["receiveAmount"]["value"] == "920"
        instance.clock.advance(400)
        error = refusal(quote(instance), 400, "invalid_receiver", reason="exchange_rate_expired")
        assert "from USD to EUR is 40" in error["details"]["hint"]
