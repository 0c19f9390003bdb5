"""Exchange rates from a service that the operator configures: fetched regularly, each valid for a limited time."""

import logging
from collections.abc import Iterable
from contextlib import suppress
from decimal import Decimal
from typing import Final
from urllib.parse import quote

import msgspec

from payres.core.process.worker import Worker
from payres.core.protocol.amounts import parse_rate
from payres.core.protocol.clock import SECOND, Clock
from payres.core.remote.connection import FetchFailed, bad_content
from payres.core.remote.http import GuardedClient
from payres.core.store import accounts
from payres.core.store.accounts import RateRecord
from payres.core.store.database import Database
from payres.core.store.work import Transaction

LEAST_PAUSE: Final = 5
# How far the first digit may be from the decimal point, so that a number such as 1e99 does not become a long text.
MAX_MAGNITUDE: Final = 60

log = logging.getLogger("payres.rates")


class _Answer(msgspec.Struct, frozen=True):
    base: str
    rates: dict[str, msgspec.Raw]


async def watch_rates(database: Database, http: GuardedClient, clock: Clock, url: str, max_age: int) -> None:
    """Refreshes the rates between all currencies in use regularly, until the database is in fail-stop.

    A rate is valid for `max_age` seconds and refreshed long before its end, also after a failure.
    """
    pause = max(LEAST_PAUSE, max_age / 4)

    async def step() -> float:
        await refresh_rates(database, http, clock, url, max_age)
        return pause

    await Worker("the refresh of exchange rates", database, step, pause).run()


async def refresh_rates(database: Database, http: GuardedClient, clock: Clock, url: str, max_age: int) -> None:
    """Fetches the rates of each currency in use once. Rates set by the operator stay."""
    codes = await database.read(accounts.list_codes)
    rates: list[RateRecord] = []
    for base in codes if len(codes) > 1 else ():
        asked_at = clock.now()  # before the request, so that rates never look newer than they are
        try:
            found = await fetch_rates(http, url, base, [code for code in codes if code != base])
        except FetchFailed as error:
            log.warning("no exchange rates from %s: %s", base, error.sentence)
        else:
            expires_at = asked_at + max_age * SECOND
            rates += [RateRecord(base, counter, rate, asked_at, expires_at) for counter, rate in found.items()]

    def unit(tx: Transaction) -> None:
        for rate in rates:
            accounts.refresh_rate(tx, rate)

    if rates:
        await database.write(unit)


async def fetch_rates(http: GuardedClient, url: str, base: str, counters: Iterable[str]) -> dict[str, str]:
    """What one unit of `base` buys, by counter currency, as exact decimals for `parse_rate`.

    Requests `GET {url}?base=USD`, answered with `{"base": "USD", "rates": {"EUR": 0.9}}`. Omits currencies without a
    rate, or whose rate is not a positive number of reasonable length. Raises FetchFailed, without the URL in its
    sentence, because it may contain a key.
    """
    asked = f"{url}{'&' if '?' in url else '?'}base={quote(base, safe='')}"
    try:
        response = await http.request("GET", asked, {"Accept": "application/json"})
    except FetchFailed as error:
        if asked not in error.sentence:
            raise
        sentence = "The URL in rates_url cannot be asked: it must start with https:// and name a host"
        raise FetchFailed(sentence) from error
    if response.status != 200:
        raise FetchFailed(f"The rates service answered {response.status} instead of 200")
    answer = response.decoded(_Answer, "The rates service did not answer with rates", says_why=True)
    if answer.base != base:
        raise bad_content(f"The rates service answered with rates of another base than {base}")
    found = {}
    for counter in counters:
        number = answer.rates.get(counter)
        rate = None if number is None else _decimal(bytes(number))
        if rate is None:
            log.warning("the rates service gave no usable rate from %s to %s", base, counter)
        else:
            found[counter] = rate
    return found


def _decimal(number: bytes) -> str | None:
    """A JSON number as an exact plain decimal; None if it cannot be a rate."""
    with suppress(ValueError):
        value = msgspec.json.decode(number, type=Decimal)
        if abs(value.adjusted()) <= MAX_MAGNITUDE and not number.strip().startswith(b'"'):
            plain = f"{value:f}"
            parse_rate(plain)
            return plain
    return None
