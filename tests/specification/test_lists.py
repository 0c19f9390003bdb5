"""Specification 2.6, 4.1 and 4.2: lists and their pages."""

from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote
from uuid import UUID

import httpx2

from payres.identifiers import new_id
from payres.operator import wallets
from tests.helpers import usd
from tests.specification.driver import Driver
from tests.specification.scenario import Row, Send, breaks, keeps, play, table
from tests.specification.shapes import INCOMING_PAYMENT, OUTGOING_PAYMENT, PAGINATION

INCOMING, OUTGOING = "incoming-payments", "outgoing-payments"


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


def page(collection: str, size: int, query: str, expected: slice) -> Send:
    """A page of a list of `size`; {0} in the query is the cursor of the newest. It has the payments of `expected`."""

    def send(driver: Driver) -> httpx2.Response:
        wallet, cursors = filled(driver, collection, size)
        answer = driver.list_of(collection, wallet, query.format(*cursors))
        body = answer.json()
        assert [item["id"].rpartition("/")[2] for item in body["result"]] == cursors[expected]
        PAGINATION.check(body["pagination"])
        shown = cursors[expected]
        edges = {"startCursor": shown[0], "endCursor": shown[-1]} if shown else {}
        assert {
            name: value for name, value in body["pagination"].items() if name in {"startCursor", "endCursor"}
        } == edges
        return answer

    return send


def refused_page(collection: str, query: str) -> Send:
    """A list of one payment asked for so; {0} is its cursor."""

    def send(driver: Driver) -> httpx2.Response:
        wallet, cursors = filled(driver, collection, 1)
        return driver.list_of(collection, wallet, query.format(*cursors))

    return send


def all_pages(collection: str) -> Send:
    """The last page of a walk to the older ones, which came by each payment once; and the walk back likewise."""

    def send(driver: Driver) -> httpx2.Response:
        wallet, cursors = filled(driver, collection, 7)
        seen: list[str] = []
        answer = driver.list_of(collection, wallet, "first=3")
        while True:
            body = answer.json()
            seen += [item["id"].rpartition("/")[2] for item in body["result"]]
            if not body["pagination"]["hasNextPage"]:
                break
            answer = driver.list_of(collection, wallet, f"first=3&cursor={body['pagination']['endCursor']}")
        assert seen == cursors
        back = driver.list_of(collection, wallet, f"last=3&cursor={seen[-1]}").json()
        assert [item["id"].rpartition("/")[2] for item in back["result"]] == cursors[3:6]
        return answer

    return send


def with_cursor_of_nothing(collection: str) -> Send:
    """A page after a cursor that is newer than all and nobody's."""

    def send(driver: Driver) -> httpx2.Response:
        wallet, cursors = filled(driver, collection, 2)
        cursor = new_id()
        assert UUID(cursor) > UUID(cursors[0])
        return driver.list_of(collection, wallet, f"cursor={cursor}")

    return send


def other_client(collection: str, action: str) -> Send:
    """The list of what `client` made, as `other` sees it."""

    def send(driver: Driver) -> httpx2.Response:
        wallet, _ = filled(driver, collection, 1)
        token = driver.token(collection.removesuffix("s"), action, wallet=wallet, by=driver.other)
        return driver.other.get(f"/{collection}?wallet-address={quote(wallet, '')}", token)

    return send


def of_wallet(collection: str, query: str) -> Send:
    """A list of payments, of whom `query` says; {wallet} is the taker's, {other} the payer's."""

    def send(driver: Driver) -> httpx2.Response:
        token = driver.token(collection.removesuffix("s"), "list", wallet=driver.taker)
        names = {"wallet": quote(driver.taker, ""), "other": quote(driver.payer, "")}
        return driver.client.get(f"/{collection}?{query.format(**names)}", token)

    return send


def of_inactive_wallet(collection: str) -> Send:
    def send(driver: Driver) -> httpx2.Response:
        wallet = driver.fresh()
        token = driver.token(collection.removesuffix("s"), "list", wallet=wallet)
        driver.instance.write(lambda tx: wallets.deactivate(tx, driver.path(wallet)))
        return driver.client.get(f"/{collection}?wallet-address={quote(wallet, '')}", token)

    return send


class Rules(NamedTuple):
    """Which parts of the specification a list follows: whose payments it has, and how its pages are asked for."""

    mine: str
    counts: str
    back: str
    cursors: str


RULES = {INCOMING: Rules("4.2.1", "4.2.2", "4.2.2", "4.2.2"), OUTGOING: Rules("4.1.1", "4.1.3", "4.1.4", "4.1.5")}


def rows_of(collection: str) -> list[Row]:
    """The rows that both lists share."""
    return [
        *rows_of_whole_lists(collection),
        *rows_of_pages_onward(collection),
        *rows_of_pages_back(collection),
        *rows_of_refused_pages(collection),
        *rows_of_clients(collection),
        *rows_of_wallets(collection),
        *rows_of_grants(collection),
    ]


def named(collection: str, name: str) -> str:
    return f"{collection}: {name}"


def bad(collection: str, rules: str, name: str, query: str, field: str) -> Row:
    """A page that is refused for what `field` of the query is."""
    send = refused_page(collection, query)
    return breaks(f"{rules} 7.4", named(collection, name), send, f"400 invalid_request field={field}")


def rows_of_whole_lists(collection: str) -> list[Row]:
    """Lists that fit one page."""
    rules, shape = RULES[collection], INCOMING_PAYMENT if collection == INCOMING else OUTGOING_PAYMENT
    whole = {"pagination.hasNextPage": False, "pagination.hasPreviousPage": False}

    return [
        keeps(
            f"{rules.mine} 4.1.2 2.6.1",
            named(collection, "all, newest first"),
            page(collection, 3, "", slice(0, 3)),
            200,
            values=whole,
            shapes={"result": shape},
        ),
        keeps(
            f"{rules.mine} 2.6.1",
            named(collection, "nothing"),
            page(collection, 0, "", slice(0, 0)),
            200,
            values={"result": [], **whole},
            absent="pagination.startCursor pagination.endCursor",
        ),
        keeps(
            rules.counts,
            named(collection, "a hundred"),
            page(collection, 1, "first=100", slice(0, 1)),
            200,
            values=whole,
        ),
    ]


def rows_of_pages_onward(collection: str) -> list[Row]:
    """Pages towards the older payments."""
    rules = RULES[collection]
    return [
        keeps(
            f"{rules.counts} 2.6.2",
            named(collection, "the first two of three"),
            page(collection, 3, "first=2", slice(0, 2)),
            200,
            values={"pagination.hasNextPage": True, "pagination.hasPreviousPage": False},
        ),
        keeps(
            f"{rules.counts} 2.6.2",
            named(collection, "two after the newest"),
            page(collection, 4, "first=2&cursor={0}", slice(1, 3)),
            200,
            values={"pagination.hasNextPage": True, "pagination.hasPreviousPage": True},
        ),
        keeps(
            f"{rules.counts} 2.6.2",
            named(collection, "what comes after a cursor"),
            page(collection, 3, "cursor={1}", slice(2, 3)),
            200,
            values={"pagination.hasNextPage": False, "pagination.hasPreviousPage": True},
        ),
        keeps(
            f"{rules.counts} 2.6.2",
            named(collection, "nothing comes after the oldest"),
            page(collection, 2, "cursor={1}", slice(0, 0)),
            200,
            values={"pagination.hasNextPage": False, "pagination.hasPreviousPage": True},
        ),
        keeps(
            rules.counts,
            named(collection, "twenty of twenty-one by default"),
            page(collection, 21, "", slice(0, 20)),
            200,
            values={"pagination.hasNextPage": True},
        ),
    ]


def rows_of_pages_back(collection: str) -> list[Row]:
    """Pages towards the newer payments, both ways in turn, and cursors of no payment."""
    rules = RULES[collection]
    return [
        keeps(
            f"{rules.back} 2.6.2",
            named(collection, "two before the oldest"),
            page(collection, 4, "last=2&cursor={3}", slice(1, 3)),
            200,
            values={"pagination.hasNextPage": True, "pagination.hasPreviousPage": True},
        ),
        keeps(
            f"{rules.back} 2.6.2",
            named(collection, "nothing comes before the newest"),
            page(collection, 2, "last=2&cursor={0}", slice(0, 0)),
            200,
            values={"pagination.hasNextPage": True, "pagination.hasPreviousPage": False},
        ),
        keeps(
            f"{rules.counts} {rules.back} 2.6.2",
            named(collection, "there and back in pages"),
            all_pages(collection),
            200,
            values={"pagination.hasNextPage": False},
        ),
        keeps(
            f"{rules.cursors} 2.6.3",
            named(collection, "a cursor that is nobody's"),
            with_cursor_of_nothing(collection),
            200,
            present="result.1",
        ),
    ]


def rows_of_refused_pages(collection: str) -> list[Row]:
    """Numbers and cursors that no page can be made of."""
    rules = RULES[collection]
    return [
        bad(collection, rules.back, "last without cursor", "last=1", "cursor"),
        bad(collection, f"{rules.counts} {rules.back}", "first and last", "first=1&last=1&cursor={0}", "last"),
        *(
            bad(collection, rules.counts, f"first is {text!r}", f"first={text}", "first")
            for text in ("0", "101", "-1", "1.5", "one", "", "%2B1", "%C2%B2", "1e1", "9" * 30)
        ),
        *(
            bad(collection, rules.back, f"last is {text!r}", f"cursor={{0}}&last={text}", "last")
            for text in ("0", "101", "x")
        ),
        *(
            bad(collection, f"{rules.cursors} 2.6.3", f"cursor is {text!r}", f"cursor={text}", "cursor")
            for text in ("", "x", "%00", "{{{0}}}", "urn:uuid:{0}", "{0}0")
        ),
        *(bad(collection, rules.counts, f"{name} twice", f"{name}=1&{name}=1", name) for name in ("first", "last")),
        bad(collection, rules.cursors, "cursor twice", "cursor={0}&cursor={0}", "cursor"),
    ]


def rows_of_clients(collection: str) -> list[Row]:
    """Payments that another client made."""
    return [
        keeps(
            "4.1.6",
            named(collection, "another client's, with list"),
            other_client(collection, "list"),
            200,
            values={"result": []},
        ),
        keeps(
            "4.1.6",
            named(collection, "another client's, with list-all"),
            other_client(collection, "list-all"),
            200,
            present="result.0",
            absent="result.1",
        ),
    ]


def rows_of_wallets(collection: str) -> list[Row]:
    """Ways to say whose payments are wanted."""
    mine = RULES[collection].mine
    return [
        keeps(
            mine,
            named(collection, "of a wallet address with a slash"),
            of_wallet(collection, "wallet-address={wallet}%2F"),
            200,
            present="result",
        ),
        keeps(
            mine,
            named(collection, "with a parameter that nobody knows"),
            of_wallet(collection, "wallet-address={wallet}&x=1"),
            200,
            present="result",
        ),
        *(
            breaks(
                f"{mine} 7.4",
                named(collection, name),
                of_wallet(collection, query),
                "400 invalid_request field=wallet-address",
            )
            for name, query in {
                "of nobody": "first=1",
                "of nothing": "wallet-address=",
                "of two": "wallet-address={wallet}&wallet-address={wallet}",
                "of walletAddress": "walletAddress={wallet}",
            }.items()
        ),
        breaks(
            f"{mine} 2.2.3",
            named(collection, "of an inactive one"),
            of_inactive_wallet(collection),
            "400 invalid_request field=wallet-address",
        ),
    ]


def rows_of_grants(collection: str) -> list[Row]:
    """Lists that the grant is not for."""
    mine = RULES[collection].mine
    return [
        breaks(
            f"{mine} 7.6",
            named(collection, "of another than the grant's"),
            of_wallet(collection, "wallet-address={other}"),
            "403 insufficient_access identifier",
        ),
        breaks(
            f"{mine} 7.6",
            named(collection, "without list"),
            lambda driver: driver.client.get(
                f"/{collection}?wallet-address={quote(driver.taker, '')}",
                driver.token(collection.removesuffix("s"), "create", wallet=driver.taker),
            ),
            "403 insufficient_access action",
        ),
    ]


ROWS: list[Row] = [*rows_of(INCOMING), *rows_of(OUTGOING)]


@table(ROWS)
def test_lists(driver: Driver, row: Row) -> None:
    play(driver, row)
