"""SQL that proves the ledger: for each invariant, how many rows it speaks of and which of them break it.

Every query is one scan, or one scan with lookups by index, so that a million payments are proved in seconds. Those of
which the scan may be long can be asked of a portion of the rows too.
"""

from collections.abc import Sequence

import msgspec

from payres.store.database import Transaction

MAX_BREACHES = 5
PORTION = "/* of the portion */ true"  # stands in the SQL where the bounds of a portion go

Key = int | str | bytes


class Proof(msgspec.Struct, frozen=True):
    """An invariant in words, the SQL that counts the rows it speaks of, and the SQL that describes what breaks it.

    One whose SQL names PORTION can be asked of the rows whose `key` lies between two of `keys`, a table and its column.
    """

    name: str
    claim: str
    unit: str
    counted: str
    breaches: str
    keys: tuple[str, str] | None = None
    key: str = ""


def count(proof: Proof, tx: Transaction) -> int:
    """How many rows the invariant speaks of."""
    return _figure(tx, proof.counted)


def breaches(proof: Proof, tx: Transaction) -> Sequence[str]:
    """The first few breaches, a sentence each; none when the invariant holds."""
    return [row[0] for row in tx.execute(f"SELECT * FROM ({proof.breaches}) LIMIT {MAX_BREACHES}")]


def breaches_within(proof: Proof, tx: Transaction, after: Key | None, last: Key) -> Sequence[str]:
    """The breaches among the rows after one key, or from the first on, to the other, that one included."""
    bounds = f"{proof.key} <= :last" if after is None else f"{proof.key} > :after AND {proof.key} <= :last"
    query = f"SELECT * FROM ({proof.breaches.replace(PORTION, bounds)}) LIMIT {MAX_BREACHES}"
    return [row[0] for row in tx.execute(query, {"after": after, "last": last})]


def end_of_portion(proof: Proof, tx: Transaction, after: Key | None, rows: int) -> tuple[Key | None, bool]:
    """The last key of a portion of so many rows or fewer, None when there is none, and whether more follow."""
    assert proof.keys is not None
    table, column = proof.keys
    where = "" if after is None else "WHERE k > :after"
    last, found = tx.execute(
        f'SELECT max(k), count(*) FROM (SELECT "{column}" AS k FROM "{table}" {where} ORDER BY k LIMIT :rows)',
        {"after": after, "rows": rows},
    ).fetchone()
    return last, found == rows


def reference_proofs(tx: Transaction) -> Sequence[Proof]:
    """A proof for each reference of the schema: that what it refers to exists. All are to one column."""
    found = tx.execute("""
        SELECT child.name, link."from", parent.name, coalesce(link."to", parent_key.name), key.name
        FROM sqlite_schema child JOIN pragma_foreign_key_list(child.name) link
        JOIN sqlite_schema parent ON parent.type = 'table' AND parent.name = link."table" COLLATE nocase
        JOIN pragma_table_info(parent.name) parent_key ON parent_key.pk = 1
        JOIN pragma_table_info(child.name) key ON key.pk = 1
        WHERE child.type = 'table'
    """).fetchall()
    return [
        Proof(
            name="references",
            claim="what rows refer to exists",
            unit="rows",
            counted=f'SELECT count(*) FROM "{child}"',
            breaches=f"""
                SELECT '{child} row ' || quote(c."{key}") || ' refers to a missing {parent}' FROM "{child}" c
                WHERE {PORTION} AND c."{column}" IS NOT NULL
                AND NOT EXISTS (SELECT 1 FROM "{parent}" p WHERE p."{parent_key}" = c."{column}")
            """,
            keys=(child, key),
            key=f'c."{key}"',
        )
        for child, column, parent, parent_key, key in found
    ]


def posted(tx: Transaction, after: int, rows: int) -> Sequence[tuple[int, int, int, int]]:
    """Transfers from the one after an id on: id, debited and credited account, amount."""
    return tx.execute(
        "SELECT id, debit_account_id, credit_account_id, amount FROM transfer WHERE id > ? ORDER BY id LIMIT ?",
        (after, rows),
    ).fetchall()


def balances(tx: Transaction, after: int, last: int) -> Sequence[tuple[int, int]]:
    """The id and balance of each account from the one after an id to the last, that one included."""
    return tx.execute("SELECT id, balance FROM account WHERE id > ? AND id <= ?", (after, last)).fetchall()


def count_tables(tx: Transaction) -> int:
    """How many tables the database has."""
    return _figure(tx, "SELECT count(*) FROM sqlite_schema WHERE type = 'table'")


def dangling(tx: Transaction) -> Sequence[str]:
    """Rows that refer to rows which do not exist."""
    rows = tx.execute(f'SELECT "table", rowid, parent FROM pragma_foreign_key_check LIMIT {MAX_BREACHES}')
    return [f"{table} row {rowid or '(by key)'} refers to a missing {parent}" for table, rowid, parent in rows]


def count_pages(tx: Transaction) -> int:
    """How many pages the file has."""
    return _figure(tx, "PRAGMA page_count")


def damage(tx: Transaction) -> Sequence[str]:
    """What SQLite itself finds wrong with the file, its indexes and its constraints."""
    rows = [row[0] for row in tx.execute(f"PRAGMA integrity_check({MAX_BREACHES})")]
    return [] if rows == ["ok"] else rows


def has_account_after(tx: Transaction, account_id: int) -> bool:
    """Whether an account has a greater id."""
    return tx.execute("SELECT 1 FROM account WHERE id > ? LIMIT 1", (account_id,)).fetchone() is not None


def _figure(tx: Transaction, query: str) -> int:
    figure: int = tx.execute(query).fetchone()[0]
    return figure


def sums_to(terms: str, figure: str) -> str:
    """SQL: whether the exact sum of `terms` over a group is `figure`.

    sum() fails where a partial sum passes 2^63, which the turnover of an account may although its balance never does;
    so the upper and lower halves of the figures are summed apart and the lower sum is carried over.
    """
    low = f"coalesce(sum(({terms}) & 4294967295), 0)"
    high = f"coalesce(sum(({terms}) >> 32), 0)"
    return f"({high} + ({low} >> 32) = {figure} >> 32 AND {low} & 4294967295 = {figure} & 4294967295)"


LEDGER_PROOFS: Sequence[Proof] = (
    Proof(
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
    Proof(
        name="balances",
        claim="each account's balance is its credits minus its debits",
        unit="accounts",
        counted="SELECT count(*) FROM account",
        breaches=f"""
            SELECT 'account ' || account_id || ' has a balance that its transfers miss by '
              || cast(total(change) AS integer) || ' minor units'
            FROM (
              SELECT credit_account_id AS account_id, amount AS change FROM transfer
              UNION ALL SELECT debit_account_id, -amount FROM transfer
              UNION ALL SELECT id, -balance FROM account
            ) GROUP BY account_id HAVING NOT {sums_to("change", "0")}
        """,
    ),
    Proof(
        name="transfers",
        claim="both accounts of each transfer are kept in one asset",
        unit="transfers",
        counted="SELECT count(*) FROM transfer",
        keys=("transfer", "id"),
        key="t.id",
        breaches=f"""
            SELECT 'transfer ' || t.id || ' moves between account ' || d.id || ' and account ' || c.id
              || ' of another asset'
            FROM transfer t JOIN account d ON d.id = t.debit_account_id JOIN account c ON c.id = t.credit_account_id
            WHERE d.asset_id <> c.asset_id AND {PORTION}
        """,
    ),
    Proof(
        name="reserved",
        claim="what each account has reserved is what its open reservations hold",
        unit="open reservations",
        counted="SELECT count(*) FROM reservation WHERE remaining > 0",
        keys=("account", "id"),
        key="a.id",
        breaches=f"""
            SELECT 'account ' || a.id || ' has ' || a.reserved || ' reserved, its open reservations hold '
              || cast(total(r.remaining) AS integer)
            FROM account a LEFT JOIN reservation r ON r.account_id = a.id AND r.remaining > 0
            WHERE {PORTION}
            GROUP BY a.id HAVING NOT {sums_to("r.remaining", "a.reserved")}
        """,
    ),
    Proof(
        name="floors",
        claim="no account has less free than its floor",
        unit="accounts with a floor",
        counted="SELECT count(*) FROM account WHERE floor IS NOT NULL",
        breaches="""
            SELECT 'account ' || id || ' (' || kind || ') has a balance of ' || balance || ' with ' || reserved
              || ' reserved, its floor is ' || floor
            FROM account WHERE balance - reserved < floor OR reserved < 0
        """,
    ),
    Proof(
        name="received",
        claim="each incoming payment has received what was transferred to it",
        unit="incoming payments",
        counted="SELECT count(*) FROM incoming_payment",
        keys=("incoming_payment", "id"),
        key="p.id",
        breaches=f"""
            SELECT 'incoming payment ' || p.id || ' says it received ' || p.received || ', its transfers sum to '
              || cast(total(t.amount) AS integer)
            FROM incoming_payment p JOIN wallet_address w ON w.id = p.wallet_address_id
            LEFT JOIN transfer t ON t.incoming_payment_id = p.id AND t.credit_account_id = w.account_id
            WHERE {PORTION}
            GROUP BY p.id HAVING NOT {sums_to("t.amount", "p.received")}
        """,
    ),
    Proof(
        name="sent",
        claim="each outgoing payment that has ended sent what was transferred from its wallet",
        unit="ended outgoing payments",
        counted="SELECT count(*) FROM outgoing_payment WHERE state <> 'sending'",
        keys=("outgoing_payment", "id"),
        key="p.id",
        breaches=f"""
            SELECT 'outgoing payment ' || p.id || ' says it sent ' || p.sent || ', its transfers sum to '
              || cast(total(t.amount) AS integer)
            FROM outgoing_payment p JOIN wallet_address w ON w.id = p.wallet_address_id
            LEFT JOIN transfer t ON t.outgoing_payment_id = p.id AND t.debit_account_id = w.account_id
            WHERE p.state <> 'sending' AND {PORTION}
            GROUP BY p.id HAVING NOT {sums_to("t.amount", "p.sent")}
        """,
    ),
    Proof(
        name="delivered",
        claim="each ended outgoing payment to a receiver here delivered what was transferred to that receiver",
        unit="ended outgoing payments to receivers here",
        counted="SELECT count(*) FROM outgoing_payment WHERE state <> 'sending' AND incoming_payment_id IS NOT NULL",
        keys=("outgoing_payment", "id"),
        key="p.id",
        breaches=f"""
            SELECT 'outgoing payment ' || p.id || ' says it delivered ' || p.delivered || ', its transfers sum to '
              || cast(total(t.amount) AS integer)
            FROM outgoing_payment p
            LEFT JOIN transfer t ON t.outgoing_payment_id = p.id AND t.incoming_payment_id = p.incoming_payment_id
            WHERE p.state <> 'sending' AND p.incoming_payment_id IS NOT NULL AND {PORTION}
            GROUP BY p.id HAVING NOT {sums_to("t.amount", "p.delivered")}
        """,
    ),
    Proof(
        name="ended",
        claim="no reservation of an ended payment is open",
        unit="open reservations",
        counted="SELECT count(*) FROM reservation WHERE remaining > 0",
        breaches="""
            SELECT 'reservation ' || r.id || ' still holds ' || r.remaining || ' for the ended outgoing payment '
              || p.id
            FROM reservation r JOIN outgoing_payment p ON p.id = r.outgoing_payment_id
            WHERE r.remaining > 0 AND p.state <> 'sending'
        """,
    ),
    Proof(
        name="sending",
        claim="each payment under way still holds, or has sent, the whole of its debit amount",
        unit="outgoing payments under way",
        counted="SELECT count(*) FROM outgoing_payment WHERE state = 'sending'",
        breaches="""
            SELECT 'outgoing payment ' || p.id || ' under way neither holds nor has sent its whole ' || p.debit
            FROM outgoing_payment p JOIN wallet_address w ON w.id = p.wallet_address_id
            WHERE p.state = 'sending' AND p.debit <> (
              SELECT coalesce(sum(r.remaining), 0) FROM reservation r
              WHERE r.outgoing_payment_id = p.id AND r.account_id = w.account_id
            ) + (
              SELECT coalesce(sum(t.amount), 0) FROM transfer t
              WHERE t.outgoing_payment_id = p.id AND t.debit_account_id = w.account_id
            )
        """,
    ),
    Proof(
        name="decided",
        claim="no reservation of a packet with a known outcome is open",
        unit="open reservations",
        counted="SELECT count(*) FROM reservation WHERE remaining > 0",
        breaches="""
            SELECT 'reservation ' || r.id || ' still holds ' || r.remaining || ' for the ' || k.state || ' packet '
              || k.id
            FROM reservation r JOIN packet k ON k.id = r.packet_id
            WHERE r.remaining > 0 AND k.state <> 'prepared'
        """,
    ),
    Proof(
        name="under_way",
        claim="each packet under way holds its amounts: the inbound peer's, and liquidity where the assets differ",
        unit="packets under way",
        counted="SELECT count(*) FROM packet WHERE state = 'prepared'",
        breaches="""
            SELECT 'packet ' || k.id || ' under way does not hold its ' || k.source_amount || ' and ' || k.amount
            FROM packet k JOIN peer target ON target.id = k.to_peer_id
            JOIN account given ON given.id = target.account_id
            LEFT JOIN peer source ON source.id = k.from_peer_id
            LEFT JOIN outgoing_payment p ON p.id = k.outgoing_payment_id
            LEFT JOIN wallet_address w ON w.id = p.wallet_address_id
            JOIN account taken ON taken.id = coalesce(source.account_id, w.account_id)
            WHERE k.state = 'prepared' AND (
              iif(source.id IS NULL, 0, k.source_amount) <> (
                SELECT coalesce(sum(r.remaining), 0) FROM reservation r
                WHERE r.packet_id = k.id AND r.account_id = taken.id
              ) OR iif(taken.asset_id = given.asset_id, 0, k.amount) <> (
                SELECT coalesce(sum(r.remaining), 0) FROM reservation r JOIN account a ON a.id = r.account_id
                WHERE r.packet_id = k.id AND r.account_id <> taken.id AND a.asset_id = given.asset_id
              )
            )
        """,
    ),
    Proof(
        name="promised",
        claim="what each payment under way has reserved covers its packets under way",
        unit="outgoing payments under way",
        counted="SELECT count(*) FROM outgoing_payment WHERE state = 'sending'",
        breaches="""
            SELECT 'outgoing payment ' || p.id || ' has more in packets under way than it has reserved'
            FROM outgoing_payment p JOIN wallet_address w ON w.id = p.wallet_address_id
            WHERE p.state = 'sending' AND (
              SELECT coalesce(sum(k.source_amount), 0) FROM packet k
              WHERE k.outgoing_payment_id = p.id AND k.state = 'prepared'
            ) > (
              SELECT coalesce(sum(r.remaining), 0) FROM reservation r
              WHERE r.outgoing_payment_id = p.id AND r.account_id = w.account_id
            ) - p.fee
        """,
    ),
    Proof(
        name="limits",
        claim="no grant has spent less than nothing",
        unit="windows of grants",
        counted="SELECT count(*) FROM grant_spending",
        keys=("grant_spending", "grant_id"),
        key="grant_id",
        breaches=f"""
            SELECT 'grant ' || grant_id || ' has spent a debit of ' || debit || ' and a receive of ' || receive
              || ' in the window from ' || window_start
            FROM grant_spending WHERE (debit < 0 OR receive < 0) AND {PORTION}
        """,
    ),
    Proof(
        name="spending",
        claim="what each grant has spent in each window is what its payments hold and sent",
        unit="windows of grants",
        counted="SELECT count(*) FROM grant_spending",
        keys=("grant", "id"),
        key="grant_id",
        breaches=f"""
            SELECT 'grant ' || grant_id || ' in the window from ' || window_start || ' towards ' || receive_code
              || ' misses its payments by a debit of ' || cast(total(debit) AS integer)
              || ' and a receive of ' || cast(total(receive) AS integer)
            FROM (
              SELECT grant_id, window_start, receive_code, receive_scale, debit, receive FROM grant_spending
              WHERE {PORTION}
              UNION ALL SELECT grant_id, window_start, receive_code, receive_scale,
                -iif(state = 'sending', debit, sent), -iif(state = 'sending', receive, min(receive, delivered))
              FROM outgoing_payment WHERE grant_id IS NOT NULL AND {PORTION}
            ) GROUP BY grant_id, window_start, receive_code, receive_scale
            HAVING NOT {sums_to("debit", "0")} OR NOT {sums_to("receive", "0")}
        """,
    ),
)
