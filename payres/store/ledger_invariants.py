"""The invariants of the ledger: how many rows each is about, and which of them break it."""

from collections.abc import Sequence

from payres.store.accounts import LOW_PART
from payres.store.invariants import Invariant
from payres.store.payments import REFUND_COUNTED, REFUNDS

RECENT = 1000


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
        name="sides",
        claim="each transfer is between accounts of the kinds that it should be, and of the peers of its packet",
        unit="transfers",
        counted="SELECT count(*) FROM transfer",
        breaches="""
            SELECT 'transfer ' || t.id || ' (' || t.kind || ') went from account ' || d.id || ' (' || d.kind
              || ') to account ' || c.id || ' (' || c.kind || ')'
            FROM transfer t JOIN account d ON d.id = t.debit_account_id JOIN account c ON c.id = t.credit_account_id
            LEFT JOIN packet k ON k.id = t.packet_id
            LEFT JOIN peer source ON source.id = k.from_peer_id LEFT JOIN peer target ON target.id = k.to_peer_id
            WHERE t.id BETWEEN :first AND :last AND (
              (t.kind = 'fee') <> (c.kind = 'fees')
              OR (t.kind IN ('deposit', 'withdrawal')) <> ('external' IN (d.kind, c.kind))
              OR (k.id IS NOT NULL AND d.kind = 'peer' AND d.id IS NOT source.account_id)
              OR (k.id IS NOT NULL AND c.kind = 'peer' AND c.id IS NOT target.account_id)
            )
        """,
        keys=("transfer", "id"),
    ),
    Invariant(
        name="movements",
        claim="each deposit and each withdrawal is recorded as a movement of its account",
        unit="transfers",
        counted="SELECT count(*) FROM transfer",
        breaches="""
            SELECT 'transfer ' || t.id || ' (' || t.kind || ') is no movement of its account' FROM transfer t
            WHERE t.id BETWEEN :first AND :last AND t.kind IN ('deposit', 'withdrawal') AND NOT EXISTS (
              SELECT 1 FROM movement m WHERE m.transfer_id = t.id
              AND m.account_id = iif(t.kind = 'deposit', t.credit_account_id, t.debit_account_id)
            )
        """,
        keys=("transfer", "id"),
    ),
    Invariant(
        name="accounts",
        claim="each wallet and each peer has an account of its kind, a wallet in its asset, and no other does",
        unit="accounts",
        counted="SELECT count(*) FROM account",
        breaches="""
            SELECT 'account ' || a.id || ' (' || a.kind || ') is that of '
              || coalesce('wallet ' || w.path, 'peer ' || p.name, 'no wallet and no peer')
            FROM account a LEFT JOIN wallet_address w ON w.account_id = a.id LEFT JOIN peer p ON p.account_id = a.id
            WHERE a.id BETWEEN :first AND :last AND (
              (a.kind = 'wallet') <> (w.id IS NOT NULL) OR (a.kind = 'peer') <> (p.id IS NOT NULL)
              OR w.asset_id <> a.asset_id
            )
        """,
        keys=("account", "id"),
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
        claim="no account has less free than its floor, which is zero or a peer's credit limit",
        unit="accounts with a floor",
        counted="SELECT count(*) FROM account WHERE floor IS NOT NULL",
        # Nothing but warn_below says a second time what a peer's credit limit is.
        breaches=f"""
            SELECT 'account ' || id || ' (' || kind || ') has a balance of ' || balance || ' with ' || held
              || ' held, its floor is ' || coalesce(floor, 'missing')
            FROM account WHERE balance - held < floor OR held < 0 OR CASE kind
              WHEN 'external' THEN floor IS NOT NULL
              WHEN 'peer' THEN floor IS NULL OR floor > 0 OR coalesce(warn_below, 0) <> -floor / {LOW_PART}
              ELSE floor IS NOT 0 END
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
        name="debited",
        claim="each ended outgoing payment says the debit that it held, or sent at once, and a completed one its fee",
        unit="ended outgoing payments",
        counted="SELECT count(*) FROM outgoing_payment WHERE state <> 'sending'",
        # The fee of one that has failed is in proportion to what it sent.
        breaches="""
            SELECT 'outgoing payment ' || p.id || ' says a debit of ' || p.debit || ' and a fee of ' || p.fee
              || ', which is not what it held and paid'
            FROM outgoing_payment p JOIN wallet_address w ON w.id = p.wallet_address_id
            WHERE p.id BETWEEN :first AND :last AND p.state <> 'sending' AND (
              p.debit <> coalesce(
                (SELECT sum(r.amount) FROM hold r WHERE r.outgoing_payment_id = p.id AND r.account_id = w.account_id),
                p.sent
              ) OR p.state = 'completed' AND p.fee <> (
                SELECT coalesce(sum(t.amount), 0) FROM transfer t WHERE t.outgoing_payment_id = p.id AND t.kind = 'fee'
              )
            )
        """,
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
