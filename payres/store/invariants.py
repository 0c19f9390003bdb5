"""The invariants of the ledger, in SQL: how many rows each is about, and which of them break it.

Every query is one scan, or one scan with lookups by index. Those over tables that grow with each payment are asked a
range of keys at a time, so that no transaction is long.
"""

from collections.abc import Sequence

import msgspec

from payres.store.refunds import REFUND_COUNTED, REFUNDS
from payres.store.work import Transaction

MAX_BREACHES = 5
RECENT = 1000

Key = int | str | bytes


class Invariant(msgspec.Struct, frozen=True):
    """An invariant in words, the SQL that counts the rows it is about, and the SQL that describes what breaks it.

    When `breaches` is about the rows from :first to :last, `keys` is the table and column of these, and `recent`
    selects those that were used lately.
    """

    name: str
    claim: str
    unit: str
    counted: str
    breaches: str
    keys: tuple[str, str] | None = None
    recent: str = ""


def breaches(tx: Transaction, invariant: Invariant, first: Key | None = None, last: Key | None = None) -> Sequence[str]:
    """The first few breaches, a sentence each, of an invariant without keys or among the rows from one to another."""
    limited = f"SELECT * FROM ({invariant.breaches}) LIMIT {MAX_BREACHES}"
    return [row[0] for row in tx.execute(limited, {"first": first, "last": last})]


def recent_breaches(tx: Transaction, invariant: Invariant) -> Sequence[str]:
    """The first few breaches of an invariant without keys, or among the rows that were used lately."""
    if invariant.keys is None:
        return breaches(tx, invariant)
    keys = [key for (key,) in tx.execute(invariant.recent)] if invariant.recent else []
    return [breach for key in keys for breach in breaches(tx, invariant, key, key)][:MAX_BREACHES]


def next_batch(tx: Transaction, keys: tuple[str, str], after: Key | None, rows: int) -> tuple[Key, Key] | None:
    """The first and the last key of the next rows after a key, or of the first rows; None when there are none."""
    table, column = keys
    where = "" if after is None else "WHERE k > :after"
    first, last = tx.execute(
        f'SELECT min(k), max(k) FROM (SELECT "{column}" AS k FROM "{table}" {where} ORDER BY k LIMIT :rows)',
        {"after": after, "rows": rows},
    ).fetchone()
    return None if first is None else (first, last)


def transfers_after(tx: Transaction, transfer_id: int, rows: int) -> Sequence[tuple[int, int, int, int]]:
    """The next transfers: id, debited and credited account, amount."""
    return tx.execute(
        "SELECT id, debit_account_id, credit_account_id, amount FROM transfer WHERE id > ? ORDER BY id LIMIT ?",
        (transfer_id, rows),
    ).fetchall()


def balances(tx: Transaction, first: int, last: int) -> Sequence[tuple[int, int]]:
    """The id and balance of each account from one id to another."""
    return tx.execute("SELECT id, balance FROM account WHERE id BETWEEN ? AND ?", (first, last)).fetchall()


def reference_invariants(tx: Transaction) -> Sequence[Invariant]:
    """An invariant for each reference of the schema: that what it refers to exists. All are to one column."""
    # The keys are found once, not for each reference: SQLite would take ten times as long.
    found = tx.execute("""
        WITH keyed AS MATERIALIZED (SELECT t.name AS "table", key.name AS key
          FROM sqlite_schema t JOIN pragma_table_info(t.name) key ON key.pk = 1 WHERE t.type = 'table')
        SELECT child."table", link."from", parent."table", coalesce(link."to", parent.key), child.key
        FROM keyed child JOIN pragma_foreign_key_list(child."table") link
        JOIN keyed parent ON parent."table" = link."table" COLLATE nocase
    """).fetchall()
    return [
        Invariant(
            name="references",
            claim="what rows refer to exists",
            unit="tables",
            counted="SELECT count(*) FROM sqlite_schema WHERE type = 'table'",
            breaches=f"""
                SELECT '{child} row ' || quote(c."{key}") || ' refers to a missing {parent}' FROM "{child}" c
                WHERE c."{key}" BETWEEN :first AND :last AND c."{column}" IS NOT NULL
                AND NOT EXISTS (SELECT 1 FROM "{parent}" p WHERE p."{parent_key}" = c."{column}")
            """,
            keys=(child, key),
        )
        for child, column, parent, parent_key, key in found
    ]


def sums_to(terms: str, figure: str) -> str:
    """SQL: whether the exact sum of `terms` over a group is `figure`.

    sum() fails where a partial sum passes 2^63, which the turnover of an account may although its balance never does;
    so the upper and lower halves of the figures are summed apart and the lower sum is carried over.
    """
    low = f"coalesce(sum(({terms}) & 4294967295), 0)"
    high = f"coalesce(sum(({terms}) >> 32), 0)"
    return f"({high} + ({low} >> 32) = {figure} >> 32 AND {low} & 4294967295 = {figure} & 4294967295)"


def _transferred(side: str, total: str, transfers: str, condition: str = "true") -> str:
    """SQL: the payments of a side whose total is not the sum of their transfers, which `transfers` joins as t."""
    return f"""
        SELECT '{side} payment ' || p.id || ' says it {total} ' || p.{total} || ', its transfers sum to '
          || cast(total(t.amount) AS integer)
        FROM {side}_payment p JOIN wallet_address w ON w.id = p.wallet_address_id LEFT JOIN transfer t ON {transfers}
        WHERE p.id BETWEEN :first AND :last AND {condition}
        GROUP BY p.id HAVING NOT {sums_to("t.amount", f"p.{total}")}
    """


# One of its own, because no index leads from an account to its transfers.
BALANCES = Invariant(
    name="balances",
    claim="each account's balance is its credits minus its debits",
    unit="accounts",
    counted="SELECT count(*) FROM account",
    breaches="",
)

FILE = Invariant(
    name="file",
    claim="the file and its indexes are sound",
    unit="pages",
    counted="PRAGMA page_count",
    breaches="SELECT * FROM pragma_integrity_check WHERE integrity_check <> 'ok'",
)

RECENTLY_SENT = f"SELECT id FROM outgoing_payment ORDER BY id DESC LIMIT {RECENT}"

LEDGER_INVARIANTS: Sequence[Invariant] = (
    Invariant(
        name="zero_sum",
        claim="the balances of all accounts of an asset sum to zero",
        unit="assets",
        counted="SELECT count(*) FROM asset",
        breaches=f"""
            SELECT 'the balances in ' || s.code || ' with scale ' || s.scale || ' sum to '
              || cast(total(a.balance) AS integer) || ' minor units'
            FROM account a JOIN asset s ON s.id = a.asset_id
            GROUP BY a.asset_id HAVING NOT {sums_to("a.balance", "0")}
        """,
    ),
    BALANCES,
    Invariant(
        name="transfers",
        claim="both accounts of each transfer are kept in one asset",
        unit="transfers",
        counted="SELECT count(*) FROM transfer",
        breaches="""
            SELECT 'transfer ' || t.id || ' moves between account ' || d.id || ' and account ' || c.id
              || ' of another asset'
            FROM transfer t JOIN account d ON d.id = t.debit_account_id JOIN account c ON c.id = t.credit_account_id
            WHERE d.asset_id <> c.asset_id AND t.id BETWEEN :first AND :last
        """,
        keys=("transfer", "id"),
        recent=f"SELECT id FROM transfer ORDER BY id DESC LIMIT {RECENT}",
    ),
    Invariant(
        name="held",
        claim="what each account holds back is what its open holds say",
        unit="open holds",
        counted="SELECT count(*) FROM hold WHERE remaining > 0",
        breaches=f"""
            SELECT 'account ' || account_id || ' holds back ' || sum(kept) || ', its open holds sum to '
              || cast(total(open) AS integer)
            FROM (
              SELECT id AS account_id, held AS kept, 0 AS open FROM account WHERE held <> 0
              UNION ALL SELECT account_id, 0, remaining FROM hold WHERE remaining > 0
            ) GROUP BY account_id HAVING NOT {sums_to("kept - open", "0")}
        """,
    ),
    Invariant(
        name="floors",
        claim="no account has less free than its floor",
        unit="accounts with a floor",
        counted="SELECT count(*) FROM account WHERE floor IS NOT NULL",
        breaches="""
            SELECT 'account ' || id || ' (' || kind || ') has a balance of ' || balance || ' with ' || held
              || ' held, its floor is ' || floor
            FROM account WHERE balance - held < floor OR held < 0
        """,
    ),
    Invariant(
        name="received",
        claim="each incoming payment has received what was transferred to it",
        unit="incoming payments",
        counted="SELECT count(*) FROM incoming_payment",
        breaches=_transferred(
            side="incoming",
            total="received",
            transfers="t.incoming_payment_id = p.id AND t.credit_account_id = w.account_id",
        ),
        keys=("incoming_payment", "id"),
        recent=f"""
            SELECT DISTINCT incoming_payment_id
            FROM (SELECT incoming_payment_id FROM transfer ORDER BY id DESC LIMIT {RECENT})
            WHERE incoming_payment_id IS NOT NULL
        """,
    ),
    Invariant(
        name="sent",
        claim="each outgoing payment that has ended sent what was transferred from its wallet",
        unit="ended outgoing payments",
        counted="SELECT count(*) FROM outgoing_payment WHERE state <> 'sending'",
        breaches=_transferred(
            side="outgoing",
            total="sent",
            transfers="t.outgoing_payment_id = p.id AND t.debit_account_id = w.account_id",
            condition="p.state <> 'sending'",
        ),
        keys=("outgoing_payment", "id"),
        recent=RECENTLY_SENT,
    ),
    Invariant(
        name="delivered",
        claim="each ended outgoing payment to a receiver here delivered what was transferred to that receiver",
        unit="ended outgoing payments to receivers here",
        counted="SELECT count(*) FROM outgoing_payment WHERE state <> 'sending' AND incoming_payment_id IS NOT NULL",
        breaches=_transferred(
            side="outgoing",
            total="delivered",
            transfers="t.outgoing_payment_id = p.id AND t.incoming_payment_id = p.incoming_payment_id",
            condition="p.state <> 'sending' AND p.incoming_payment_id IS NOT NULL",
        ),
        keys=("outgoing_payment", "id"),
        recent=RECENTLY_SENT,
    ),
    Invariant(
        name="ended",
        claim="no hold of an ended payment is open",
        unit="open holds",
        counted="SELECT count(*) FROM hold WHERE remaining > 0",
        breaches="""
            SELECT 'hold ' || r.id || ' still has ' || r.remaining || ' for the ended outgoing payment '
              || p.id
            FROM hold r JOIN outgoing_payment p ON p.id = r.outgoing_payment_id
            WHERE r.remaining > 0 AND p.state <> 'sending'
        """,
    ),
    Invariant(
        name="sending",
        claim="each payment in flight still holds, or has sent, the whole of its debit amount",
        unit="outgoing payments in flight",
        counted="SELECT count(*) FROM outgoing_payment WHERE state = 'sending'",
        breaches="""
            SELECT 'outgoing payment ' || p.id || ' in flight neither holds nor has sent its whole ' || p.debit
            FROM outgoing_payment p JOIN wallet_address w ON w.id = p.wallet_address_id
            WHERE p.state = 'sending' AND p.debit <> (
              SELECT coalesce(sum(r.remaining), 0) FROM hold r
              WHERE r.outgoing_payment_id = p.id AND r.account_id = w.account_id
            ) + (
              SELECT coalesce(sum(t.amount), 0) FROM transfer t
              WHERE t.outgoing_payment_id = p.id AND t.debit_account_id = w.account_id
            )
        """,
    ),
    Invariant(
        name="decided",
        claim="no hold of a packet with a known outcome is open",
        unit="open holds",
        counted="SELECT count(*) FROM hold WHERE remaining > 0",
        breaches="""
            SELECT 'hold ' || r.id || ' still has ' || r.remaining || ' for the ' || k.state || ' packet '
              || k.id
            FROM hold r JOIN packet k ON k.id = r.packet_id
            WHERE r.remaining > 0 AND k.state <> 'prepared'
        """,
    ),
    Invariant(
        name="under_way",
        claim="each packet in flight holds its amounts: the inbound peer's, and liquidity where the assets differ",
        unit="packets in flight",
        counted="SELECT count(*) FROM packet WHERE state = 'prepared'",
        breaches="""
            SELECT 'packet ' || k.id || ' in flight does not hold its ' || k.source_amount || ' and ' || k.amount
            FROM packet k JOIN peer target ON target.id = k.to_peer_id
            JOIN account given ON given.id = target.account_id
            LEFT JOIN peer source ON source.id = k.from_peer_id
            LEFT JOIN outgoing_payment p ON p.id = k.outgoing_payment_id
            LEFT JOIN wallet_address w ON w.id = p.wallet_address_id
            JOIN account taken ON taken.id = coalesce(source.account_id, w.account_id)
            WHERE k.state = 'prepared' AND (
              iif(source.id IS NULL, 0, k.source_amount) <> (
                SELECT coalesce(sum(r.remaining), 0) FROM hold r
                WHERE r.packet_id = k.id AND r.account_id = taken.id
              ) OR iif(taken.asset_id = given.asset_id, 0, k.amount) <> (
                SELECT coalesce(sum(r.remaining), 0) FROM hold r JOIN account a ON a.id = r.account_id
                WHERE r.packet_id = k.id AND r.account_id <> taken.id AND a.asset_id = given.asset_id
              )
            )
        """,
    ),
    Invariant(
        name="promised",
        claim="what each payment in flight holds covers its packets in flight",
        unit="outgoing payments in flight",
        counted="SELECT count(*) FROM outgoing_payment WHERE state = 'sending'",
        breaches="""
            SELECT 'outgoing payment ' || p.id || ' has more in packets in flight than it holds'
            FROM outgoing_payment p JOIN wallet_address w ON w.id = p.wallet_address_id
            WHERE p.state = 'sending' AND (
              SELECT coalesce(sum(k.source_amount), 0) FROM packet k
              WHERE k.outgoing_payment_id = p.id AND k.state = 'prepared'
            ) > (
              SELECT coalesce(sum(r.remaining), 0) FROM hold r
              WHERE r.outgoing_payment_id = p.id AND r.account_id = w.account_id
            ) - p.fee
        """,
    ),
    Invariant(
        name="refunds",
        claim="no more of an incoming payment was sent back than it had received",
        unit="refunds",
        counted="SELECT count(*) FROM refund",
        breaches=f"""
            SELECT 'incoming payment ' || i.id || ' received ' || i.received || ', and ' || sum({REFUND_COUNTED})
              || ' of it was sent back'
            FROM {REFUNDS.source} JOIN incoming_payment i ON i.id = r.incoming_payment_id
            WHERE r.incoming_payment_id BETWEEN :first AND :last GROUP BY i.id HAVING sum({REFUND_COUNTED}) > i.received
        """,
        keys=("refund", "incoming_payment_id"),
        recent=f"SELECT incoming_payment_id FROM refund ORDER BY id DESC LIMIT {RECENT}",
    ),
    Invariant(
        name="refunded",
        claim="each refund left the receiver's wallet and came back to the payer's as it says, or a payment sends it",
        unit="refunds",
        counted="SELECT count(*) FROM refund",
        breaches=f"""
            SELECT 'refund ' || r.id || ' of ' || r.amount || ', returned as ' || r.returned
              || ', was transferred otherwise'
            FROM refund r JOIN incoming_payment i ON i.id = r.incoming_payment_id
            JOIN outgoing_payment o ON o.id = r.outgoing_payment_id
            JOIN wallet_address w ON w.id = i.wallet_address_id JOIN wallet_address v ON v.id = o.wallet_address_id
            LEFT JOIN transfer t ON t.refund_id = r.id WHERE r.id BETWEEN :first AND :last
            GROUP BY r.id HAVING sum(iif(t.debit_account_id = w.account_id, t.amount, 0)) <> r.amount
              OR sum(iif(t.credit_account_id = v.account_id, t.amount, 0)) <> r.returned
            UNION ALL SELECT 'refund ' || r.id || ' is not what outgoing payment ' || p.id || ' sends'
            FROM {REFUNDS.source} JOIN incoming_payment i ON i.id = r.incoming_payment_id
            WHERE r.id BETWEEN :first AND :last AND (p.debit <> r.amount OR p.wallet_address_id <> i.wallet_address_id)
        """,
        keys=("refund", "id"),
        recent=f"SELECT id FROM refund ORDER BY id DESC LIMIT {RECENT}",
    ),
    Invariant(
        name="limits",
        claim="no grant has spent less than nothing",
        unit="windows of grants",
        counted="SELECT count(*) FROM grant_spending",
        breaches="""
            SELECT 'grant ' || grant_id || ' has spent a debit of ' || debit || ' and a receive of ' || receive
              || ' in the window from ' || window_start
            FROM grant_spending WHERE (debit < 0 OR receive < 0) AND grant_id BETWEEN :first AND :last
        """,
        keys=("grant_spending", "grant_id"),
    ),
    Invariant(
        name="spending",
        claim="what each grant has spent in each window is what its payments hold, sent and may have sent",
        unit="windows of grants",
        counted="SELECT count(*) FROM grant_spending",
        breaches=f"""
            SELECT 'grant ' || grant_id || ' in the window from ' || window_start || ' towards ' || receive_code
              || ' misses its payments by a debit of ' || cast(total(debit) AS integer)
              || ' and a receive of ' || cast(total(receive) AS integer)
            FROM (
              SELECT grant_id, window_start, receive_code, receive_scale, debit, receive FROM grant_spending
              WHERE grant_id BETWEEN :first AND :last
              UNION ALL SELECT grant_id, window_start, receive_code, receive_scale,
                -iif(state = 'sending', debit, sent + unresolved_debit),
                -iif(state = 'sending', receive, min(receive, delivered + unresolved_receive))
              FROM outgoing_payment WHERE grant_id IS NOT NULL AND grant_id BETWEEN :first AND :last
            ) GROUP BY grant_id, window_start, receive_code, receive_scale
            HAVING NOT {sums_to("debit", "0")} OR NOT {sums_to("receive", "0")}
        """,
        keys=("grant", "id"),
        recent=f"""
            SELECT DISTINCT grant_id FROM (SELECT grant_id FROM outgoing_payment ORDER BY id DESC LIMIT {RECENT})
            WHERE grant_id IS NOT NULL
        """,
    ),
)
