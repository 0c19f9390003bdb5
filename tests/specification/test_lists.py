"""Specification 2.6, 4.1 and 4.2: lists and their pages."""

from collections.abc import Callable, Iterator
from urllib.parse import quote
from uuid import UUID

import httpx2

from payres.core.protocol.identifiers import new_id
from payres.operator import wallets
from tests.helpers import usd
from tests.specification.driver import Driver
from tests.specification.scenario import Row, breaks, keeps, play, sender, table
from tests.specification.test_incoming_payments import INCOMING_PAYMENT
from tests.specification.test_outgoing_payments import OUTGOING_PAYMENT

INCOMING, OUTGOING = "incoming-payments", "outgoing-payments"
PAGINATION = "hasNextPage hasPreviousPage startCursor? endCursor?"


def filled(driver: Driver, collection: str, size: int) -> tuple[str, list[str]]:
    """A wallet address with so many payments, and their cursors, the newest first."""
    wallet = driver.fresh(deposit="1.00")
    receiver = driver.incoming()
    make: Callable[[], str] = (
        (lambda: driver.incoming(usd(1), wallet, metadata={"a": 1}))
        if collection == INCOMING
        else (lambda: str(driver.send(receiver, usd(1), wallet).json()["id"]))
    )
    return wallet, [make().rpartition("/")[2] for _ in range(size)][::-1]


def cursors_of(answer: httpx2.Response) -> list[str]:
    return [item["id"].rpartition("/")[2] for item in answer.json()["result"]]


@sender
def page(driver: Driver, collection: str, size: int, query: str, first: int, last: int) -> httpx2.Response:
    """A page of a list of `size`; {0} in the query is the cursor of the newest. It has those from `first` to `last`."""
    wallet, cursors = filled(driver, collection, size)
    answer = driver.list_of(collection, wallet, query.format(*cursors))
    shown = cursors[first:last]
    assert cursors_of(answer) == shown
    found = answer.json()["pagination"]
    edges = {"startCursor": shown[0], "endCursor": shown[-1]} if shown else {}
    assert {name: value for name, value in found.items() if name.endswith("Cursor")} == edges
    return answer


@sender
def refused_page(driver: Driver, collection: str, query: str) -> httpx2.Response:
    """A list of one payment asked for so; {0} is its cursor."""
    wallet, cursors = filled(driver, collection, 1)
    return driver.list_of(collection, wallet, query.format(*cursors))


@sender
def all_pages(driver: Driver, collection: str) -> httpx2.Response:
    """The last page of a walk to the older ones, which came by each payment once; and the walk back likewise."""
    wallet, cursors = filled(driver, collection, 7)
    answer = driver.list_of(collection, wallet, "first=3")
    seen = cursors_of(answer)
    while answer.json()["pagination"]["hasNextPage"]:
        answer = driver.list_of(collection, wallet, f"first=3&cursor={answer.json()['pagination']['endCursor']}")
        seen += cursors_of(answer)
    assert seen == cursors
    assert cursors_of(driver.list_of(collection, wallet, f"last=3&cursor={seen[-1]}")) == cursors[3:6]
    return answer


@sender
def with_cursor_of_nothing(driver: Driver, collection: str) -> httpx2.Response:
    """A page after a cursor that is newer than all and nobody's."""
    wallet, cursors = filled(driver, collection, 2)
    cursor = new_id()
    assert UUID(cursor) > UUID(cursors[0])
    return driver.list_of(collection, wallet, f"cursor={cursor}")


@sender
def of_other_client(driver: Driver, collection: str, action: str) -> httpx2.Response:
    """The list of what `client` made, as `other` sees it."""
    wallet, _ = filled(driver, collection, 1)
    token = driver.token(collection.removesuffix("s"), action, wallet=wallet, by=driver.other)
    return driver.other.get(f"/{collection}?wallet-address={quote(wallet, '')}", token)


@sender
def of_wallet(driver: Driver, collection: str, query: str, action: str = "list") -> httpx2.Response:
    """A list of payments, of whom `query` says; {wallet} is the taker's, {other} the payer's."""
    token = driver.token(collection.removesuffix("s"), action, wallet=driver.taker)
    names = {"wallet": quote(driver.taker, ""), "other": quote(driver.payer, "")}
    return driver.client.get(f"/{collection}{query.format(**names)}", token)


@sender
def of_inactive_wallet(driver: Driver, collection: str) -> httpx2.Response:
    wallet = driver.fresh()
    token = driver.token(collection.removesuffix("s"), "list", wallet=wallet)
    driver.instance.write(lambda tx: wallets.deactivate(tx, driver.path(wallet)))
    return driver.client.get(f"/{collection}?wallet-address={quote(wallet, '')}", token)


# By how many payments there are, the query, which of them the page has, and whether there are older and newer ones.
ONWARD = (
    (3, "first=2", 0, 2, True, False),
    (4, "first=2&cursor={0}", 1, 3, True, True),
    (3, "cursor={1}", 2, 3, False, True),
    (2, "cursor={1}", 0, 0, False, True),
    (1, "cursor={0}", 0, 0, False, True),
    (21, "", 0, 20, True, False),
    (1, "first=100", 0, 1, False, False),
)
BACK = (
    (4, "last=2&cursor={3}", 1, 3, True, True),
    (2, "last=2&cursor={0}", 0, 0, True, False),
    (1, "last=2&cursor={0}", 0, 0, True, False),
)


def edges(has_next: bool, has_previous: bool) -> dict[str, bool]:
    return {"pagination.hasNextPage": has_next, "pagination.hasPreviousPage": has_previous}


def rows_of(collection: str, item: str, mine: str, shape: str, counts: str, back: str, cursors: str) -> Iterator[Row]:
    """The rows that both lists share, under the numbers of their rules."""
    members = {"result": item, "pagination": PAGINATION}
    yield keeps(f"{mine} {shape} 4.1.2 2.6.1", page(collection, 3, "", 0, 3), 200, edges(False, False), members)
    nothing = {"result": [], **edges(False, False)}
    yield keeps(f"{mine} {shape} 2.6.1", page(collection, 0, "", 0, 0), 200, nothing, {"pagination": PAGINATION})
    for rule, pages in ((counts, ONWARD), (back, BACK)):
        for size, query, first, last, *more in pages:
            yield keeps(f"{rule} 2.6.2", page(collection, size, query, first, last), 200, edges(*more))
    yield keeps(f"{counts} {back} 2.6.2", all_pages(collection), 200, {"pagination.hasNextPage": False})
    yield keeps(f"{cursors} 2.6.3", with_cursor_of_nothing(collection), 200, {"result.1": dict})
    refused = {
        f"{back} cursor": ["last=1"],
        f"{counts} {back} last": ["first=1&last=1&cursor={0}"],
        f"{counts} first": [
            *(f"first={text}" for text in ("0", "101", "-1", "1.5", "one", "", "%2B1", "%C2%B2", "1e1", "9" * 30)),
            "first=1&first=1",
        ],
        f"{back} last": [*(f"cursor={{0}}&last={text}" for text in ("0", "101", "x")), "last=1&last=1"],
        f"{cursors} 2.6.3 cursor": [
            *(f"cursor={text}" for text in ("", "x", "%00", "{{{0}}}", "urn:uuid:{0}", "{0}0")),
            "cursor={0}&cursor={0}",
        ],
    }
    for about, queries in refused.items():
        *rules, field = about.split()
        for query in queries:
            send = refused_page(collection, query)
            yield breaks(f"{' '.join(rules)} 7.4", send, f"400 invalid_request field={field}")
    yield keeps("4.1.6", of_other_client(collection, "list"), 200, {"result": []})
    yield keeps("4.1.6", of_other_client(collection, "list-all"), 200, {"result.0": dict})
    # A parameter that nobody knows, and slashes after the path and the wallet address.
    for query in ("?wallet-address={wallet}&x=1", "?wallet-address={wallet}%2F", "/?wallet-address={wallet}"):
        yield keeps(f"{mine} 9.1.3", of_wallet(collection, query), 200)
    for query in (
        "?first=1",
        "?wallet-address=",
        "?wallet-address={wallet}&wallet-address={wallet}",
        "?walletAddress={wallet}",
    ):
        yield breaks(f"{mine} 7.4", of_wallet(collection, query), "400 invalid_request field=wallet-address")
    yield breaks(f"{mine} 2.2.3", of_inactive_wallet(collection), "400 invalid_request field=wallet-address")
    other = of_wallet(collection, "?wallet-address={other}")
    yield breaks(f"{mine} 7.6", other, "403 insufficient_access identifier")
    without = of_wallet(collection, "?wallet-address={wallet}", "create")
    yield breaks(f"{mine} 7.6", without, "403 insufficient_access action")


ROWS: list[Row] = [
    *rows_of(INCOMING, INCOMING_PAYMENT, "4.2.1", "9.2.13", "4.2.2", "4.2.2", "4.2.2"),
    *rows_of(OUTGOING, OUTGOING_PAYMENT, "4.1.1", "9.2.16", "4.1.3", "4.1.4", "4.1.5"),
]


@table(ROWS)
def test_lists(driver: Driver, row: Row) -> None:
    play(driver, row)
