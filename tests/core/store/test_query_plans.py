"""Every query of a request or worker uses an index, so that its cost does not grow with the tables."""

import ast
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from importlib import import_module
from inspect import signature
from types import FunctionType
from typing import Any, Literal, get_args

import msgspec
import pytest

from payres.accounts.store import kinds, mail, sessions, sign_ins
from payres.agenda.store import agenda
from payres.core.protocol.amounts import Asset
from payres.core.store import audit, clients, events, grants, incoming_payments, retention, wallets
from payres.core.store import outgoing_payments as payments
from payres.core.store.accounts import AccountRecord, AssetRecord, Cause, RateRecord
from payres.core.store.migrations import schema
from payres.core.store.retention import Rule
from payres.core.store.rows import PageQuery, Rows, Table, first_row_from, page_of_wallet, select_page
from payres.core.store.work import Transaction
from payres.interledger.store import packets, peers
from payres.operator.store import all_payments, api_keys, due_work, entries, operators, search
from payres.operator.store import grants as all_grants
from payres.operator.store.all_payments import PaymentRecord
from payres.people.store import activity, checkouts, standing_orders
from payres.webhooks.store import webhooks
from tests.helpers import ROOT
from tests.works import standing_order

Query = Callable[[Transaction], object]
WITH_QUERIES = {
    "core": ("accounts", "clients", "events", "grants", "incoming_payments", "quotes", "wallets"),
    "interledger": ("outgoing_payments", "packets", "peers"),
    "accounts": (
        "browsers",
        "codes",
        "joined_wallets",
        "links",
        "mail",
        "owners",
        "passkeys",
        "second_factors",
        "sessions",
        "sign_ins",
    ),
    "webhooks": ("webhooks",),
    "operator": ("events", "grants", "entries", "movements", "operators", "search"),
    "people": ("activity", "apps", "payments", "refunds", "standing_orders", "transfers"),
}
MODULES = [import_module(f"payres.{part}.store.{name}") for part, names in WITH_QUERIES.items() for name in names]
NEWEST = PageQuery(5)
TOWARDS: Sequence[Literal["older", "newer"]] = ("older", "newer")
# What functions are called with, by the types that they ask for.
VALUES: dict[Any, Any] = {
    int: 1,
    str: "1",
    Rule: peers.ANSWERS,
    webhooks.Due: webhooks.Due(1, webhooks.Turn(1, 1)),
    bytes: b"1",
    bool: True,
    PageQuery: NEWEST,
    RateRecord: RateRecord("EUR", "USD", "1.1", 1, 2),
    Sequence[str]: ["test.a.b", "test.a", "test"],
    Sequence[tuple[str, str]]: [],
    Sequence[tuple[int, str]]: [(1, "1")],
    Iterable[int]: [1],
    Mapping[int, int]: {1: 1},
    Mapping[str, mail.MailRate]: {"money": "off"},
    webhooks.WebhookRecord: webhooks.WebhookRecord("1", "", "*", 0, "active", b"", None, None, 1, 1),
    Sequence[webhooks.AttemptRecord]: [webhooks.AttemptRecord("1", 0, "1", "", 1, 1, 1, None, None, b"")],
    Sequence[webhooks.OfWallet]: [webhooks.OfWallet(1, "wallet.deposited", "1")],
    events.EventRecord: events.EventRecord(1, "wallet.deposited", None, b"{}", 1),
    Cause: {},
    kinds.Kind: operators.OF_OPERATORS,
    operators.Limit: operators.NO_REFUNDS,
    sign_ins.Seen: sign_ins.NOWHERE,
    Sequence[bytes]: [b"1"],
    Asset: Asset("EUR", 2),
    standing_orders.OrderRecord: standing_orders.OrderRecord(
        "1", 1, "bob", None, 1, "send", 1, "USD", 2, "", "R/2027-01-01T06:00:00Z/P1M", "UTC", "active", 1
    ),
    standing_orders.RunRecord: standing_orders.RunRecord("1", 1, 1, "missed"),
    standing_orders.OrderRecord: standing_order(1, "https://b.example/b", state="cancelled"),
}
# These have tests of their own below, or are for the operator and exports alone, or run what another one runs.
OTHERS = {
    *(
        "activity.receiving_between",
        "activity.statement",
        "accounts.last_transfer",
        "entries.net_change",
        "entries.page_of_entries",
        "entries.sums_by_day",
    ),
    *(
        "entries.transfers",
        "events.last_sequence",
        "events.continue_after",
        "events.has_old_events",
        "webhooks.signing_secrets",
        "grants.authorization_revision",
    ),
    *(
        "grants.spending",
        "packets.count_and_sum",
        "packets.newest_of_payment",
        "packets.received_amount",
        "packets.unsure_packets",
        "all_payments.page_of_payments",
    ),
    *("refunds.payers_of", "all_payments.payments_in_order", "peers.outgoing_token"),
    "codes.add_recovery_codes",
    *("refunds.delivered_here", "refunds.open_parts", "refunds.refunds_of"),
    *("wallets.count_wallets", "wallets.find_with_wallet", "events.delete_old_events", "operators.who_may_all"),
    *("mail.turn", "mail.change_mail", "mail.release_events", "sessions.change_session"),
    *("search.find_matches", "all_payments.payee_of"),
    *("webhooks.release_events", "webhooks.count_failed_deliveries", "packets.count_unresolved"),
}


def value_of(kind: Any) -> Any:
    """A value of a type; of several types, of the first, and of Literal the first."""
    if kind in VALUES:
        return VALUES[kind]
    assert get_args(kind), kind
    first = get_args(kind)[0]
    return first if isinstance(first, str) else value_of(first)


def asked_for() -> dict[str, Query]:
    """Each function of the store that takes a transaction, with values for its other parameters."""
    found: dict[str, Query] = {}
    for module in MODULES:
        room = module.__name__.rpartition(".")[2]
        for name, function in vars(module).items():
            is_own = isinstance(function, FunctionType) and function.__module__ == module.__name__
            given = signature(function).parameters.values() if is_own else ()
            kinds = [one.annotation for one in given if one.kind is not one.VAR_KEYWORD]
            if kinds and kinds[0] is Transaction and name[0] != "_" and f"{room}.{name}" not in OTHERS:
                found[f"{room}.{name}"] = call(function, *map(value_of, kinds[1:]))
    return found


def call(function: Callable[..., object], *values: Any) -> Query:
    return lambda tx: function(tx, *values)


LOOK_UP = re.compile(r"((?:\w+\.)?[A-Z_]+)\.(?:find|list|delete|count)")


def looked_up() -> dict[str, Query]:
    """What all modules look up in tables by columns."""
    found: dict[str, Query] = {}
    for path in sorted((ROOT / "payres").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if LOOK_UP.search(text) else ():
            if isinstance(node, ast.Call) and node.keywords and (of := LOOK_UP.fullmatch(ast.unparse(node.func))):
                module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
                columns = [one.arg for one in node.keywords if one.arg]
                table = eval(of[1], vars(module))
                values: dict[str, Any] = dict.fromkeys(columns, 1)
                if isinstance(table, Table):
                    found[f"{table.source} by {columns}"] = call(partial(table.find, **values))
                elif isinstance(table, Rows):
                    found[f"{table.table} by {columns}"] = call(partial(table.count, **values))
    return found


PAGES: dict[str, Query] = {
    f"{table.source}, {'all' if client_id is None else 'own'}, {towards} than {cursor}": call(
        page_of_wallet, table, PageQuery(5, cursor, towards), 1, client_id
    )
    for table in (incoming_payments.INCOMING, payments.OUTGOING)
    for client_id in (1, None)
    for towards in TOWARDS
    for cursor in (None, "00000001-0000-7000-8000-000000000000")
}
PAYMENT_PAGES: dict[str, Query] = {
    f"page_of_payments, {towards}, {sorted(wanted)}": call(
        partial(all_payments.page_of_payments, **wanted), PageQuery(5, "1", towards), 1
    )
    for towards in TOWARDS
    for wanted in (
        dict[str, Any](),
        {"wallet_id": 1, "counterpart": 1, "state": "pending", "least": 1, "most": 2},
        {"counterpart": "https://a.example", "state": "failed", "failure": "x", "direction": "outgoing"},
        {"state": "expired", "since": 1, "until": 2, "counterpart": 1, "used": True},
    )
} | {
    "payments_in_order": call(all_payments.payments_in_order, "1", "2", 0, 9, None, 5),
    "payments_in_order, wallet_id": call(all_payments.payments_in_order, "1", "2", 0, 9, 1, 5),
}
WORDS = [
    search.Word("1", ["1", "2"], ["1"], True, [search.Worth(AssetRecord(1, "USD", 2, 0, 0), 1, 1)], [1], ["a"])
] * 2
SEARCHES: dict[str, Query] = {
    f"find {name}": call(partial(search.find_matches, **more), table, WORDS, met_by, 5)
    for name, table, met_by, more in (
        ("payments", all_payments.PAYMENTS, search.of_payment, dict[str, Any]()),
        ("payments of a wallet", all_payments.PAYMENTS, search.of_payment, {"of_wallet": 1, "share": 2}),
        ("sent elsewhere", search.SENT, search.of_sent, {}),
        ("orders", standing_orders.ORDERS, search.of_order, {}),
        ("grants", search.GRANTS_OF_CLIENTS, search.of_grant, {}),
        ("changes", audit.AUDIT, search.of_change, {}),
    )
}
ASKED_FOR = asked_for()
LOOKED_UP = looked_up()
QUERIES: dict[str, Query] = (
    PAGES
    | LOOKED_UP
    | {name: query for name, query in ASKED_FOR.items() if ".list_" not in name}
    | {
        f"{module.__name__}.{name}": call(retention.purge, rule, 1)
        for module in (retention, checkouts, mail, operators, peers)
        for name, rule in vars(module).items()
        if isinstance(rule, Rule)
    }
    | {f"page of {table.source}": call(select_page, table, NEWEST) for table in (api_keys.API_KEYS, wallets.WALLETS)}
    | {
        "page of the audit log": call(select_page, audit.AUDIT, PageQuery(5, "1", "newer")),
        "clients.find_response, of an API key": call(clients.find_response, None, "1", "key"),
        "checkouts.change_checkout": call(
            checkouts.change_checkout, checkouts.CheckoutRecord(b"1", "1", b"1", "payer", 1, "asked", 1), "failed", 1
        ),
        "checkouts.gone_on": call(checkouts.gone_on, "1", b"1"),
        "kinds.delete_of": call(kinds.delete_of, operators.OF_OPERATORS, 1, "session", "passkey", "sign_in"),
        "sessions.change_session": call(partial(sessions.change_session, expires_at=1), operators.OF_OPERATORS, b"1"),
        "packets.count_and_sum, doubtful": call(packets.count_and_sum, 1, "doubtful"),
        "search.find_named": call(search.find_named, (*search.OF_PAYMENTS, *search.OF_GRANTS), ["1"]),
        "wallets.list_keys": call(wallets.list_keys, 1),
        "wallets.list_keys, revoked too": call(wallets.list_keys, 1, True),
    }
    | {
        f"all_grants.page_of_grants, {state}, {of_all}": call(all_grants.page_of_grants, state, NEWEST, 1, of_all)
        for state in ("issued", "revoked", *all_grants.IN_TIME)
        for of_all in (True, False)
    }
)
# Lists are walked in their order, without sorting.
WALKED: dict[str, Query] = (
    {name: query for name, query in ASKED_FOR.items() if ".list_" in name}
    | {"activity.listed": call(activity.listed, 1, 1, "~", 5)}
    | {
        f"all_grants.page_of_grants, {of_all}": call(all_grants.page_of_grants, None, NEWEST, 1, of_all)
        for of_all in (True, False)
    }
)

# Steps that join the results of others.
NO_SEARCHES = (
    "CO-ROUTINE",
    "SCAN (subquery",
    "SCAN CONSTANT ROW",
    "SCALAR SUBQUERY",
    "LIST SUBQUERY",
    "CORRELATED SCALAR",
    "COMPOUND QUERY",
    "LEFT",
    "RIGHT",
    "UNION ALL",
    "MERGE (UNION ALL)",
    "MULTI-INDEX OR",  # its branches follow, each with a search
    "INDEX ",
)


class RecordingConnection(sqlite3.Connection):
    """Remembers what it was asked to execute."""

    executed: list[tuple[str, Any]]

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self.executed.append((sql, parameters))
        return super().execute(sql, parameters)


# One row of what queries lead on from: of a purge, a peer, and clients of which one is not needed any more.
ROWS = """
INSERT INTO asset (id, code, scale) VALUES (1, 'EUR', 2);
INSERT INTO account (id, kind, asset_id) VALUES (1, 'wallet', 1), (2, 'peer', 1);
INSERT INTO owner (id, created_at) VALUES (1, 1);
INSERT INTO wallet_address (id, path, asset_id, account_id, owner_id, created_at, tag)
  VALUES (1, 'alice', 1, 1, 1, 1, 'a');
INSERT INTO client (id, identity, wallet_address, created_at, purge_at)
  VALUES (1, 'client', 'https://a.example', 1, 1), (2, 'unneeded', 'https://b.example', 1, 1);
INSERT INTO "grant" (id, client_id, state, access, continue_hash, waits_from, created_at, purge_at)
  VALUES ('1', 1, 'issued', '[]', x'00', 1, 1, 1);
INSERT INTO quote (id, wallet_address_id, client_id, receiver, debit_value, receive_value, receive_code,
  receive_scale, fee_value, created_at, expires_at, purge_at)
  VALUES ('1', 1, 1, '', '1', '1', 'EUR', 2, '0', 1, 1, 1);
INSERT INTO incoming_payment (id, wallet_address_id, client_id, created_at, expires_at, purge_at)
  VALUES ('1', 1, 1, 1, 1, 1);
INSERT INTO peer (id, name, account_id, ilp_address, url, outgoing_token, incoming_token_hash, created_at)
  VALUES (1, 'peer', 2, 'test.peer', 'https://peer.example', x'00', x'00', 1);
INSERT INTO answered_request VALUES (1, '1', x'00', x'00', 0);
INSERT INTO idempotency_key VALUES (1, 1, NULL, 'key', '/quotes', x'00', x'00', 0);
"""


@pytest.fixture(scope="module")
def connection() -> Iterator[RecordingConnection]:
    """A database with these rows."""
    with closing(sqlite3.connect(":memory:", factory=RecordingConnection, isolation_level=None)) as opened:
        opened.executed = []
        opened.executescript(schema() + ROWS)
        yield opened


def plans(connection: RecordingConnection, query: Query) -> dict[str, list[str]]:
    """The steps of the plan of each statement that the query runs, by the statement."""
    connection.executed.clear()
    connection.execute("SAVEPOINT asked")
    with suppress(sqlite3.IntegrityError):  # where no row has such a key, or such a state
        query(connection)
    executed = connection.executed[1:]
    connection.execute("ROLLBACK TO asked")
    connection.execute("RELEASE asked")
    assert executed
    return {
        sql: [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]
        for sql, parameters in executed
        if not sql.startswith("INSERT")
    }


def check_searches(sql: str, plan: Sequence[str]) -> None:
    steps = [step for step in plan if not step.startswith(NO_SEARCHES)]
    assert steps, sql
    for step in steps:
        assert step.startswith("SEARCH"), f"{sql}: {plan}"
        assert "INDEX" in step or "PRIMARY KEY" in step, f"{sql}: {plan}"
        assert "AUTOMATIC" not in step, f"{sql}: {plan}"


TABLES = {
    f"{module.__name__}.{name}": table
    for module in MODULES
    for name, table in vars(module).items()
    if isinstance(table, Table) and table.key.rpartition(".")[2] == "id" and not table.source.startswith("(")
}


@pytest.mark.parametrize("name", TABLES)
def test_row_is_read_and_changed_by_its_key(connection: RecordingConnection, name: str) -> None:
    table = TABLES[name]
    column = table.columns.split(", ")[1].rpartition(".")[2]
    found = plans(connection, lambda tx: table.get(tx, -1))
    if " " not in table.source:
        found |= plans(connection, lambda tx: table.update(tx, -1, **{column: None}))
    for sql, plan in found.items():
        check_searches(sql, plan)


@pytest.mark.parametrize("name", QUERIES)
def test_query_searches_an_index(connection: RecordingConnection, name: str) -> None:
    for sql, plan in plans(connection, QUERIES[name]).items():
        check_searches(sql, plan)


@pytest.mark.parametrize("name", PAGES)
def test_page_uses_the_index_of_exactly_its_list(connection: RecordingConnection, name: str) -> None:
    of = "client" if ", own, " in name else "wallet"
    columns = "client_id=? AND wallet_address_id=? AND id" if of == "client" else "wallet_address_id=? AND id"
    for sql, plan in plans(connection, PAGES[name]).items():
        searches = [step for step in plan if step.startswith("SEARCH")]
        assert len(searches) == 1
        assert f"_payment_of_{of} ({columns}" in searches[0], f"{sql}: {plan}"


@pytest.mark.parametrize("name", PAYMENT_PAGES)
def test_page_of_payments_is_walked_in_its_order(connection: RecordingConnection, name: str) -> None:
    """In both tables at once, newest first, by the index of a wallet where one is wanted."""
    for sql, plan in plans(connection, PAYMENT_PAGES[name]).items():
        assert not [step for step in plan if "B-TREE" in step or "AUTOMATIC" in step or step.startswith("SCAN p")], plan
        if "ORDER BY" in sql:
            assert plan[0] == "MERGE (UNION ALL)"
        if "wallet_id" in name:
            assert [step for step in plan if "_payment_of_wallet (wallet_address_id=? AND id" in step][1:], plan


@pytest.mark.parametrize("name", SEARCHES)
def test_search_walks_the_newest_rows_along_their_key(connection: RecordingConnection, name: str) -> None:
    for sql, plan in plans(connection, SEARCHES[name]).items():
        steps = [step for step in plan if not step.startswith("SCAN json_each")]  # the ids of a word's wallets
        assert not [step for step in steps if "B-TREE" in step or "AUTOMATIC" in step or "SCAN" in step], plan
        walks = [step for step in plan if re.match(r"SEARCH.*(\(id|grant_id|_id=\? AND id)>\?", step)]
        assert sql.count("OFFSET") or "> ?" not in sql or len(walks) == (2 if "payments" in name else 1), plan


def test_entries_of_a_payment_are_walked_in_an_index(connection: RecordingConnection) -> None:
    fields: dict[str, Any] = dict.fromkeys(field.name for field in msgspec.structs.fields(PaymentRecord))
    payment = PaymentRecord(**fields | {"id": "1", "direction": "incoming"})
    for plan in plans(connection, lambda tx: entries.page_of_entries(tx, NEWEST, payment=payment)).values():
        assert [step for step in plan if "transfer_to_incoming_payment (incoming_payment_id=? AND rowid" in step], plan
        assert not [step for step in plan if "B-TREE" in step]


@pytest.mark.parametrize("name", WALKED)
def test_list_is_walked_in_its_order(connection: RecordingConnection, name: str) -> None:
    for sql, plan in plans(connection, WALKED[name]).items():
        assert not [step for step in plan if "B-TREE" in step or "AUTOMATIC" in step], f"{sql}: {plan}"


SORTED: dict[str, Query] = {
    "ended tokens of a grant": call(retention.purge_ended_tokens, "1"),
    "spending in a window": call(grants.spending, "1", 0),
    "what has been paid since a mail": call(activity.receiving_between, 1, 1, 0, 1, 2, 5),
}


@pytest.mark.parametrize("name", SORTED)
def test_few_rows_are_searched_and_then_sorted(connection: RecordingConnection, name: str) -> None:
    for sql, plan in plans(connection, SORTED[name]).items():
        check_searches(sql, [step for step in plan if not step.startswith("USE TEMP B-TREE FOR")])


@pytest.mark.parametrize(
    "table",
    ["grant", "client", "access_token", "interaction", "session", "idempotency_key", "quote", "incoming_payment"],
)
def test_what_refers_to_a_deleted_row_is_searched_in_an_index(connection: RecordingConnection, table: str) -> None:
    """SQLite looks for rows that refer to the one that goes, in every table that may have some."""
    connection.execute("PRAGMA foreign_keys = ON")
    names = dict(connection.execute("SELECT rootpage, name FROM sqlite_schema WHERE rootpage > 0").fetchall())
    (key,) = connection.execute("SELECT name FROM pragma_table_info(?) WHERE pk = 1", (table,)).fetchone()
    opened: dict[int, str] = {}
    walked = []
    for _, operation, cursor, second, *_ in connection.execute(f'EXPLAIN DELETE FROM "{table}" WHERE {key} = ?', (1,)):
        if operation in {"OpenRead", "OpenWrite"}:
            opened[cursor] = names[second]
        elif operation == "Rewind":
            walked.append(opened[cursor])
    connection.execute("PRAGMA foreign_keys = OFF")
    assert walked == []
    if table == "grant":
        assert "outgoing_payment_of_grant" in opened.values()


@pytest.mark.parametrize(
    ("table", "index"),
    [
        *((table, f"{table}_to_purge") for table in ("grant", "client", "quote", "incoming_payment")),
        ("outgoing_payment", "%_sending"),
    ],
)
def test_index_of_what_goes_or_is_under_way_has_nothing_else(
    connection: RecordingConnection, table: str, index: str
) -> None:
    partial = connection.execute(f"SELECT partial FROM pragma_index_list('{table}') WHERE name LIKE '{index}'")
    assert partial.fetchall() == [(1,)]


def test_sums_of_an_account_are_counted_along_its_own_transfers(connection: RecordingConnection) -> None:
    account = AccountRecord(1, "wallet", 1, 1, 0, 0)
    found = plans(connection, lambda tx: activity.statement(tx, account, 1, 2)).items()
    assert {plan[0] for sql, plan in found if "sum(" in sql} == {
        "SEARCH transfer USING INDEX transfer_to_account (credit_account_id=? AND rowid>? AND rowid<?)",
        "SEARCH transfer USING INDEX transfer_from_account (debit_account_id=? AND rowid>? AND rowid<?)",
    }


def test_volume_is_counted_along_the_ids_of_transfers(connection: RecordingConnection) -> None:
    for plan in plans(connection, lambda tx: first_row_from(tx, "transfer", "id", 1)).values():
        assert not [step for step in plan if "SCAN" in step and step != "SCAN CONSTANT ROW"]
    for plan in plans(connection, lambda tx: entries.sums_by_day(tx, 1, 5)).values():
        assert plan[0] == "SEARCH t USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"
        assert not [step for step in plan if "SCAN" in step]


@pytest.mark.parametrize("name", due_work.DUE_KINDS)
def test_due_rows_are_searched_in_an_index(connection: RecordingConnection, name: str) -> None:
    kind = due_work.DUE_KINDS[name].kind
    values = dict.fromkeys([*kind.key, "kind", "now", "latest", "after", "party", "ahead"], 1)
    for sql in agenda._sql(kind).values():
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
        is_sorted = kind.source and "= :party" in sql  # an owner's few webhooks, or runs
        check_searches(sql, [step for step in plan if not (is_sorted and "TEMP B-TREE FOR ORDER" in step)])


def test_payers_of_one_server_are_one_party(connection: RecordingConnection) -> None:
    of = f"SELECT {checkouts.STEPS.party} FROM (SELECT ? AS payer)"
    payers = ("https://a.example/x", "https://a.example", "https://b.example:8443/x/y", "http://a.example/x")
    found = [connection.execute(of, (one,)).fetchone()[0] for one in payers]
    assert found[0] != found[2] != found[3] != found[0]
    assert found[1].rstrip("/") == found[0].rstrip("/")
