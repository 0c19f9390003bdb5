-- The invariants of the core's tables, in the order of their check. Each has a name, a claim, the rows that it covers,
-- and a query that describes each breach in a sentence. A query over a table that grows with each payment takes a range
-- of keys at a time, :first to :last, of the column after `by`. Those of a part stand in its own store: each follows the
-- one before it, or the one named with `after`. payres/operator/store/invariants.py reads them all.
--
-- `sums_to(terms, figure)` is whether the exact sum of a group is that figure.
--
-- rows: assets = asset
-- rows: accounts = account
-- rows: accounts with a floor = account WHERE floor IS NOT NULL
-- rows: transfers = transfer
-- rows: open holds = hold WHERE remaining > 0
-- rows: incoming payments = incoming_payment
-- rows: outgoing payments in flight = outgoing_payment WHERE state = 'sending'
-- rows: ended outgoing payments = outgoing_payment WHERE state <> 'sending'
-- rows: ended outgoing payments to receivers here = outgoing_payment WHERE state <> 'sending' AND incoming_payment_id IS NOT NULL
-- rows: windows of grants = grant_spending

-- zero_sum: the balances of all accounts of an asset sum to zero
-- about assets
SELECT 'the balances in ' || s.code || ' with scale ' || s.scale || ' sum to '
  || cast(total(a.balance) AS integer) || ' minor units'
FROM account a JOIN asset s ON s.id = a.asset_id GROUP BY a.asset_id HAVING NOT sums_to(a.balance, 0);

-- balances: each account's balance is its credits minus its debits
-- about accounts
-- There is no index from an account to its transfers: a separate scan adds all of them up.
SELECT NULL FROM account WHERE false;

-- transfers: both accounts of each transfer are kept in one asset
-- about transfers, by transfer.id
SELECT 'transfer ' || t.id || ' moves between account ' || d.id || ' and account ' || c.id
  || ' of another asset'
FROM transfer t JOIN account d ON d.id = t.debit_account_id JOIN account c ON c.id = t.credit_account_id
WHERE d.asset_id <> c.asset_id AND t.id BETWEEN :first AND :last;

-- held: what each account holds back is what its open holds say
-- about open holds
SELECT 'account ' || account_id || ' holds back ' || sum(kept) || ', its open holds sum to '
  || cast(total(open) AS integer)
FROM (
  SELECT id AS account_id, held AS kept, 0 AS open FROM account WHERE held <> 0
  UNION ALL SELECT account_id, 0, remaining FROM hold WHERE remaining > 0
) GROUP BY account_id HAVING NOT sums_to(kept - open, 0);

-- floors: no account has less free than its floor, which is zero or a peer's credit limit
-- about accounts with a floor
-- The only other record of a peer's credit limit is warn_below, a tenth of it.
SELECT 'account ' || id || ' (' || kind || ') has a balance of ' || balance || ' with ' || held
  || ' held, its floor is ' || coalesce(floor, 'missing')
FROM account WHERE balance - held < floor OR held < 0 OR CASE kind
  WHEN 'external' THEN floor IS NOT NULL
  WHEN 'peer' THEN floor IS NULL OR floor > 0 OR coalesce(warn_below, 0) <> -floor / 10
  ELSE floor IS NOT 0 END;

-- received: each incoming payment has received what was transferred to it
-- about incoming payments, by incoming_payment.id
SELECT 'incoming payment ' || p.id || ' says it received ' || p.received || ', its transfers sum to '
  || cast(total(t.amount) AS integer)
FROM incoming_payment p JOIN wallet_address w ON w.id = p.wallet_address_id
LEFT JOIN transfer t ON t.incoming_payment_id = p.id AND t.credit_account_id = w.account_id
WHERE p.id BETWEEN :first AND :last
GROUP BY p.id HAVING NOT sums_to(t.amount, p.received);

-- sent: each outgoing payment that has ended sent what was transferred from its wallet
-- about ended outgoing payments, by outgoing_payment.id
SELECT 'outgoing payment ' || p.id || ' says it sent ' || p.sent || ', its transfers sum to '
  || cast(total(t.amount) AS integer)
FROM outgoing_payment p JOIN wallet_address w ON w.id = p.wallet_address_id
LEFT JOIN transfer t ON t.outgoing_payment_id = p.id AND t.debit_account_id = w.account_id
WHERE p.id BETWEEN :first AND :last AND p.state <> 'sending'
GROUP BY p.id HAVING NOT sums_to(t.amount, p.sent);

-- debited: each ended outgoing payment says the debit that it held, or sent at once, and a completed one its fee
-- about ended outgoing payments, by outgoing_payment.id
-- The fee of a failed one is in proportion to the sent amount.
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
);

-- delivered: each ended outgoing payment to a receiver here delivered what was transferred to that receiver
-- about ended outgoing payments to receivers here, by outgoing_payment.id
SELECT 'outgoing payment ' || p.id || ' says it delivered ' || p.delivered || ', its transfers sum to '
  || cast(total(t.amount) AS integer)
FROM outgoing_payment p JOIN wallet_address w ON w.id = p.wallet_address_id
LEFT JOIN transfer t ON t.outgoing_payment_id = p.id AND t.incoming_payment_id = p.incoming_payment_id
WHERE p.id BETWEEN :first AND :last AND p.state <> 'sending' AND p.incoming_payment_id IS NOT NULL
GROUP BY p.id HAVING NOT sums_to(t.amount, p.delivered);

-- ended: no hold of an ended payment is open
-- about open holds
SELECT 'hold ' || r.id || ' still has ' || r.remaining || ' for the ended outgoing payment ' || p.id
FROM hold r JOIN outgoing_payment p ON p.id = r.outgoing_payment_id
WHERE r.remaining > 0 AND p.state <> 'sending';

-- sending: each payment in flight still holds, or has sent, the whole of its debit amount
-- about outgoing payments in flight
SELECT 'outgoing payment ' || p.id || ' in flight neither holds nor has sent its whole ' || p.debit
FROM outgoing_payment p JOIN wallet_address w ON w.id = p.wallet_address_id
WHERE p.state = 'sending' AND p.debit <> (
  SELECT coalesce(sum(r.remaining), 0) FROM hold r
  WHERE r.outgoing_payment_id = p.id AND r.account_id = w.account_id
) + (
  SELECT coalesce(sum(t.amount), 0) FROM transfer t
  WHERE t.outgoing_payment_id = p.id AND t.debit_account_id = w.account_id
);

-- limits: no grant has spent less than nothing
-- about windows of grants, by grant_spending.grant_id
SELECT 'grant ' || grant_id || ' has spent a debit of ' || debit || ' and a receive of ' || receive
  || ' in the window from ' || window_start
FROM grant_spending WHERE (debit < 0 OR receive < 0) AND grant_id BETWEEN :first AND :last;

-- spending: what each grant has spent in each window is what its payments hold, sent and may have sent
-- about windows of grants, by grant.id
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
HAVING NOT sums_to(debit, 0) OR NOT sums_to(receive, 0);
