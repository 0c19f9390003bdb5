"""Every query that a request or a worker runs is served by an index: what it costs does not grow with the tables."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Literal

import msgspec
import pytest

from payres.amounts import MAX_LEDGER
from payres.store import (
    accounts,
    assets,
    audit,
    clients,
    entries,
    events,
    grants,
    operators,
    packets,
    payments,
    peers,
    quotes,
    retention,
    wallets,
)
from payres.store.assets import RateRecord
from payres.store.connections import connect_writer
from payres.store.payments import PaymentFilter, PaymentRecord
from payres.store.rows import PageQuery, Table, first_row_from, page_of_wallet, select_page
from payres.store.work import Transaction

Query = Callable[[Transaction], object]
NEWEST = PageQuery(5)
TOWARDS: tuple[Literal["older"], Literal["newer"]] = ("older", "newer")


def page(table: Table[Any], query: PageQuery, own: bool) -> Query:
    return lambda tx: page_of_wallet(tx, table, query, 1, 1 if own else None)


PAGES: dict[str, Query] = {
    f"{name}, {'own' if own else 'all'}, {towards} than {cursor}": page(table, PageQuery(5, cursor, towards), own)
    for name, table in (("incoming", payments.INCOMING), ("outgoing", payments.OUTGOING))
    for own in (True, False)
    for towards in TOWARDS
    for cursor in (None, "00000001-0000-7000-8000-000000000000")
}


def payments_page(wanted: dict[str, Any], towards: Literal["older", "newer"]) -> Query:
    return lambda tx: payments.page_of_payments(tx, PaymentFilter(**wanted), PageQuery(5, "1", towards), 1)


PAYMENT_PAGES: dict[str, Query] = {
    f"payments.page_of_payments, {towards}, {sorted(wanted)}": payments_page(wanted, towards)
    for towards in TOWARDS
    for wanted in (
        dict[str, Any](),
        {"wallet_id": 1, "counterpart": 1, "state": "pending", "least": 1, "most": 2},
        {"counterpart": "https://a.example", "state": "failed", "failure": "x", "direction": "outgoing"},
        {"state": "expired", "created_from": 1, "created_until": 2, "counterpart": 1},
    )
} | {
    "payments.payments_in_order": lambda tx: payments.payments_in_order(tx, "1", "2", 0, 9, None, 5),
    "payments.payments_in_order, wallet_id": lambda tx: payments.payments_in_order(tx, "1", "2", 0, 9, 1, 5),
}

# Steps that join the results of others.
NO_SEARCHES = (
    "SCAN CONSTANT ROW",
    "SCALAR SUBQUERY",
    "CORRELATED SCALAR",
    "COMPOUND QUERY",
    "LEFT-MOST SUBQUERY",
    "UNION ALL",
)

QUERIES: dict[str, Query] = PAGES | {
    "accounts.find_operator_account": lambda tx: accounts.find_operator_account(tx, 1, "fees"),
    "accounts.change_account": lambda tx: accounts.change_account(tx, 1, 0, 0, MAX_LEDGER),
    "accounts.in_order": lambda tx: accounts.in_order(tx, 1, 2),
    "accounts.holds_of_payment": lambda tx: accounts.holds_of_payment(tx, "1"),
    "accounts.transferred_of_packet": lambda tx: accounts.transferred_of_packet(tx, "1", "1"),
    "accounts.reduce_hold": lambda tx: accounts.reduce_hold(tx, 1, 0),
    "assets.find_asset": lambda tx: assets.find_asset(tx, "EUR", 2),
    "assets.find_rate": lambda tx: assets.find_rate(tx, "EUR", "USD"),
    "assets.set_rate": lambda tx: assets.set_rate(tx, "EUR", "USD", "1.1", 1),
    "assets.refresh_rate": lambda tx: assets.refresh_rate(tx, RateRecord("EUR", "USD", "1.1", 1, 2)),
    "assets.remove_rate": lambda tx: assets.remove_rate(tx, "EUR", "USD"),
    "clients.find_client": lambda tx: clients.find_client(tx, "client"),
    "clients.client_keys": lambda tx: clients.client_keys(tx, "client"),
    "clients.replace_remote_keys": lambda tx: clients.replace_remote_keys(tx, 1, [], 0, 0),
    "clients.store_presented_key": lambda tx: clients.store_presented_key(tx, 1, "kid", "x", 1, 0),
    "events.events_after": lambda tx: events.events_after(tx, 1, 5),
    "events.events_of": lambda tx: events.events_of(tx, "1", [1]),
    "payments.expired_without_event": lambda tx: payments.expired_without_event(tx, 1, 5),
    "peers.peer_with_account": lambda tx: peers.peer_with_account(tx, 1),
    "events.due_deliveries": lambda tx: events.due_deliveries(tx, "1", 1, 5),
    "events.deliveries_of": lambda tx: events.deliveries_of(tx, "1", "failed", 5),
    "events.delete_webhook": lambda tx: events.delete_webhook(tx, "1"),
    "grants.page_of_grants": lambda tx: grants.page_of_grants(tx, "issued", NEWEST, 1),
    "grants.page_of_grants, pending": lambda tx: grants.page_of_grants(tx, "pending", NEWEST, 1),
    "grants.page_of_grants, lapsed": lambda tx: grants.page_of_grants(tx, "lapsed", NEWEST, 1),
    "grants.page_of_grants, expired": lambda tx: grants.page_of_grants(tx, "expired", NEWEST, 1),
    "grants.change_state": lambda tx: grants.change_state(tx, "1", "pending", "denied", 1),
    "grants.interaction_of_grant": lambda tx: grants.interaction_of_grant(tx, "1"),
    "grants.keep_grant": lambda tx: grants.keep_grant(tx, "1"),
    "grants.postpone_purge": lambda tx: grants.postpone_purge(tx, "1", 1),
    "clients.find_response": lambda tx: clients.find_response(tx, 1, None, "key"),
    "clients.find_response, of an API key": lambda tx: clients.find_response(tx, None, "1", "key"),
    "page of API keys": lambda tx: select_page(tx, operators.API_KEYS, NEWEST),
    "entries.find_movement": lambda tx: entries.find_movement(tx, 1, "reference"),
    "entries.page_of_movements": lambda tx: entries.page_of_movements(tx, 1, NEWEST),
    "page of wallets": lambda tx: select_page(tx, wallets.WALLETS, NEWEST),
    "page of the audit log": lambda tx: select_page(tx, audit.AUDIT, PageQuery(5, "1", "newer")),
    "retention.RESPONSES": lambda tx: retention.purge(tx, retention.RESPONSES, 1),
    "payments.add_received": lambda tx: payments.add_received(tx, "1", 1, None, None),
    "payments.complete_incoming": lambda tx: payments.complete_incoming(tx, "1", 1),
    "clients.use_nonce": lambda tx: clients.use_nonce(tx, 1, "kid", "nonce", 2, 1),
    "operators.find_operator": lambda tx: operators.find_operator(tx, "ann"),
    "operators.operator_of_link": lambda tx: operators.operator_of_link(tx, b"1"),
    "operators.operator_of_session": lambda tx: operators.operator_of_session(tx, b"1", 1),
    "operators.insert_session": lambda tx: operators.insert_session(tx, b"1", 1, 1, 2),
    "operators.delete_session": lambda tx: operators.delete_session(tx, b"1"),
    "operators.delete_sessions_of_operator": lambda tx: operators.delete_sessions_of_operator(tx, 1),
    "payments.end_outgoing": lambda tx: payments.end_outgoing(tx, "1", 1, 1, None, 1),
    "payments.remote_payments_since": lambda tx: payments.remote_payments_since(tx, "https://a.example/1", 1),
    "packets.packets_of_payment": lambda tx: packets.packets_of_payment(tx, "1", "prepared"),
    "packets.unresolved": lambda tx: packets.unresolved(tx, 1),
    "packets.in_flight_of_payment": lambda tx: packets.in_flight_of_payment(tx, "1"),
    "packets.decide_packet": lambda tx: packets.decide_packet(tx, "1", "rejected"),
    "packets.resolve_packet": lambda tx: packets.resolve_packet(tx, "1", "rejected"),
    "packets.unresolved_packets": lambda tx: packets.unresolved_packets(tx, 1),
    "packets.prepared_packets": lambda tx: packets.prepared_packets(tx, 5),
    "accounts.holds_of_packet": lambda tx: accounts.holds_of_packet(tx, "1"),
    "payments.refunds_of_incoming": lambda tx: payments.refunds_of_incoming(tx, "1"),
    "payments.refunds_of_outgoing": lambda tx: payments.refunds_of_outgoing(tx, "1"),
    "peers.find_peer": lambda tx: peers.find_peer(tx, "peer"),
    "peers.peer_by_id": lambda tx: peers.peer_by_id(tx, 1),
    "peers.peer_by_token": lambda tx: peers.peer_by_token(tx, b"1"),
    "peers.peers_towards": lambda tx: peers.peers_towards(tx, ["test.a.b", "test.a", "test"]),
    "peers.account_of_peer": lambda tx: peers.account_of_peer(tx, 1),
    "peers.routes_of_peer": lambda tx: peers.routes_of_peer(tx, 1),
    "peers.count_received": lambda tx: peers.count_received(tx, 1),
    "peers.count_sent": lambda tx: peers.count_sent(tx, 1),
    "peers.note_error": lambda tx: peers.note_error(tx, 1, "error", 1),
    "peers.set_repeats_answers": lambda tx: peers.set_repeats_answers(tx, 1, True),
    "peers.find_request": lambda tx: peers.find_request(tx, 1, "1"),
    "retention.ANSWERS": lambda tx: retention.purge(tx, retention.ANSWERS, 1),
    "quotes.find_quote_and_use": lambda tx: quotes.find_quote_and_use(tx, "1"),
    "retention.CLIENTS": lambda tx: retention.purge(tx, retention.CLIENTS, 1),
    "retention.GRANTS": lambda tx: retention.purge(tx, retention.GRANTS, 1),
    "retention.QUOTES": lambda tx: retention.purge(tx, retention.QUOTES, 1),
    "wallets.insert_session": lambda tx: wallets.insert_session(tx, b"1", 1, 1, 2),
    "wallets.session_wallet": lambda tx: wallets.session_wallet(tx, b"1", 1),
    "wallets.knows_browser": lambda tx: wallets.knows_browser(tx, b"1", 1, 1),
    "wallets.insert_browser": lambda tx: wallets.insert_browser(tx, b"1", 1, 1),
    "wallets.delete_browser": lambda tx: wallets.delete_browser(tx, b"1", 1),
    "wallets.delete_browsers_of_wallet": lambda tx: wallets.delete_browsers_of_wallet(tx, 1),
    "wallets.delete_session": lambda tx: wallets.delete_session(tx, b"1"),
    "grants.find_holder": lambda tx: grants.find_holder(tx, b"1"),
    "grants.revoke_token": lambda tx: grants.revoke_token(tx, "1", 1),
    "grants.revoke_tokens_of_grant": lambda tx: grants.revoke_tokens_of_grant(tx, "1", 1),
    "grants.HOLDERS": lambda tx: grants.HOLDERS.get(tx, "1"),
    "wallets.find_wallet": lambda tx: wallets.find_wallet(tx, "alice"),
    "wallets.find_key": lambda tx: wallets.find_key(tx, "alice", "key"),
    "wallets.list_keys": lambda tx: wallets.list_keys(tx, 1),
    "wallets.list_keys, revoked too": lambda tx: wallets.list_keys(tx, 1, revoked=True),
}

# What an operator asks for as a whole is walked in its order, without sorting.
WHOLE_LISTS: dict[str, Query] = {
    "operators.list_api_keys": operators.list_api_keys,
    "assets.list_assets": assets.list_assets,
    "assets.list_codes": assets.list_codes,
    "assets.list_rates": assets.list_rates,
    "grants.page_of_grants": lambda tx: grants.page_of_grants(tx, None, NEWEST, 1),
    "wallets.list_wallets": wallets.list_wallets,
}


class RecordingConnection(sqlite3.Connection):
    """Remembers what it was asked to execute."""

    executed: list[tuple[str, Any]]

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self.executed.append((sql, parameters))
        return super().execute(sql, parameters)


@pytest.fixture(scope="module")
def connection() -> Iterator[RecordingConnection]:
    """A copy of a database that holds one wallet address and one client."""
    opened = sqlite3.connect(":memory:", factory=RecordingConnection, isolation_level=None)
    opened.executed = []
    with closing(opened), closing(connect_writer(":memory:")) as original:
        original.execute("INSERT INTO asset (id, code, scale) VALUES (1, 'EUR', 2)")
        original.execute("INSERT INTO account (id, kind, asset_id) VALUES (1, 'wallet', 1)")
        original.execute(
            "INSERT INTO wallet_address (id, path, asset_id, account_id, created_at) VALUES (1, 'alice', 1, 1, 1)"
        )
        original.execute(
            "INSERT INTO client (id, identity, wallet_address, created_at, purge_at)"
            " VALUES (1, 'client', 'https://a.example', 1, 1), (2, 'unneeded', 'https://b.example', 1, 1)"
        )
        original.execute(
            'INSERT INTO "grant" (id, client_id, state, access, continue_hash, waits_from, created_at, purge_at)'
            " VALUES ('1', 1, 'issued', '[]', x'00', 1, 1, 1)"
        )
        original.execute(
            "INSERT INTO quote (id, wallet_address_id, client_id, receiver, debit_value, receive_value, receive_code,"
            " receive_scale, fee_value, created_at, expires_at, purge_at)"
            " VALUES ('1', 1, 1, '', '1', '1', 'EUR', 2, '0', 1, 1, 1)"
        )
        original.execute("INSERT INTO account (id, kind, asset_id) VALUES (2, 'peer', 1)")
        original.execute(
            "INSERT INTO peer (id, name, account_id, ilp_address, url, outgoing_token, incoming_token_hash, created_at)"
            " VALUES (1, 'peer', 2, 'test.peer', 'https://peer.example', x'00', x'00', 1)"
        )
        original.execute("INSERT INTO answered_request VALUES (1, '1', x'00', x'00', 0)")
        original.execute("INSERT INTO idempotency_key VALUES (1, 1, NULL, 'key', '/quotes', x'00', x'00', 0)")
        original.backup(opened)
        yield opened


def plans(connection: RecordingConnection, query: Query) -> dict[str, list[str]]:
    """The steps of the plan of each statement that the query runs, by the statement."""
    connection.executed.clear()
    connection.execute("SAVEPOINT asked")
    query(connection)
    executed = connection.executed[1:]
    connection.execute("ROLLBACK TO asked")
    connection.execute("RELEASE asked")
    found = {
        sql: [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]
        for sql, parameters in executed
        if not sql.startswith("INSERT")
    }
    assert found
    return found


TABLES = {
    f"{module.__name__}.{name}": table
    for module in (accounts, assets, clients, events, grants, operators, packets, payments, quotes, wallets)
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
        assert all(step.startswith("SEARCH") and ("INDEX" in step or "PRIMARY KEY" in step) for step in plan), sql


@pytest.mark.parametrize("name", QUERIES)
def test_query_searches_an_index(connection: RecordingConnection, name: str) -> None:
    for sql, plan in plans(connection, QUERIES[name]).items():
        steps = [step for step in plan if not step.startswith(NO_SEARCHES)]
        assert steps, sql
        for step in steps:
            assert step.startswith("SEARCH"), f"{sql}: {plan}"
            assert "INDEX" in step or "PRIMARY KEY" in step, f"{sql}: {plan}"
            assert "AUTOMATIC" not in step, f"{sql}: {plan}"


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


def test_entries_of_a_payment_are_walked_in_an_index(connection: RecordingConnection) -> None:
    fields: dict[str, Any] = dict.fromkeys(field.name for field in msgspec.structs.fields(PaymentRecord))
    payment = PaymentRecord(**fields | {"id": "1", "direction": "incoming"})
    for plan in plans(connection, lambda tx: entries.page_of_entries(tx, NEWEST, payment=payment)).values():
        assert [step for step in plan if "transfer_to_incoming_payment (incoming_payment_id=? AND rowid" in step], plan
        assert not [step for step in plan if "B-TREE" in step]


@pytest.mark.parametrize("name", WHOLE_LISTS)
def test_whole_list_is_walked_in_its_order(connection: RecordingConnection, name: str) -> None:
    for sql, plan in plans(connection, WHOLE_LISTS[name]).items():
        assert not [step for step in plan if "B-TREE" in step or "AUTOMATIC" in step], f"{sql}: {plan}"


def test_payments_under_way_are_walked_in_an_index_of_their_own(connection: RecordingConnection) -> None:
    (plan,) = plans(connection, lambda tx: payments.sending_remote(tx, 5)).values()
    assert plan == ["SEARCH outgoing_payment USING INDEX outgoing_payment_sending (id>?)"]
    partial = connection.execute("SELECT partial FROM pragma_index_list('outgoing_payment') WHERE name LIKE '%sending'")
    assert partial.fetchall() == [(1,)], "it holds the payments under way and no others"


def test_ended_tokens_of_one_grant_alone_are_sorted(connection: RecordingConnection) -> None:
    (plan,) = plans(connection, lambda tx: retention.purge_ended_tokens(tx, "1")).values()
    assert plan == [
        "SEARCH access_token USING INDEX access_token_of_grant (grant_id=?)",
        "USE TEMP B-TREE FOR ORDER BY",
    ]


@pytest.mark.parametrize(
    "table", ["grant", "client", "access_token", "interaction", "session", "idempotency_key", "quote"]
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


def test_what_stays_is_not_in_the_indexes_of_what_goes(connection: RecordingConnection) -> None:
    for table in ("grant", "client", "quote"):
        partial = f"SELECT partial FROM pragma_index_list('{table}') WHERE name = '{table}_to_purge'"
        assert connection.execute(partial).fetchall() == [(1,)]


def test_spending_sorts_nothing_but_one_window(connection: RecordingConnection) -> None:
    (plan,) = plans(connection, lambda tx: grants.spending(tx, "1", 0)).values()
    assert plan == [
        "SEARCH grant_spending USING PRIMARY KEY (grant_id=? AND window_start=?)",
        "USE TEMP B-TREE FOR ORDER BY",
    ]


def test_volume_is_counted_along_the_ids_of_transfers(connection: RecordingConnection) -> None:
    for plan in plans(connection, lambda tx: first_row_from(tx, "transfer", "id", 1)).values():
        assert not [step for step in plan if "SCAN" in step and step != "SCAN CONSTANT ROW"]
    for plan in plans(connection, lambda tx: entries.sums_by_day(tx, 1, 5)).values():
        assert plan[0] == "SEARCH t USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"
        assert not [step for step in plan if "SCAN" in step]
