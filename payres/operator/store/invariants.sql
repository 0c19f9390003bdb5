-- The invariants of movements and standing orders, in the form of payres/core/store/invariants.sql.
--
-- rows: dates of standing orders = standing_order_run

-- movements: each deposit and each withdrawal is recorded as a movement of its account
-- about transfers, by transfer.id, after sides
SELECT 'transfer ' || t.id || ' (' || t.kind || ') is no movement of its account' FROM transfer t
WHERE t.id BETWEEN :first AND :last AND t.kind IN ('deposit', 'withdrawal') AND NOT EXISTS (
  SELECT 1 FROM movement m WHERE m.transfer_id = t.id
  AND m.account_id = iif(t.kind = 'deposit', t.credit_account_id, t.debit_account_id)
);

-- undone: each movement that undoes another is its opposite in the same account
-- about transfers, by transfer.id
SELECT 'movement ' || m.id || ' is not the opposite of movement ' || m.undoes FROM transfer t
JOIN movement m ON m.transfer_id = t.id JOIN movement f ON f.id = m.undoes JOIN transfer o ON o.id = f.transfer_id
WHERE t.id BETWEEN :first AND :last
AND (t.debit_account_id, t.credit_account_id, t.amount) <> (o.credit_account_id, o.debit_account_id, o.amount);

-- standing_orders: each paid date of a standing order is one payment of its wallet, of what the order says
-- about dates of standing orders, by standing_order.id, after spending
SELECT 'date ' || r.window || ' of standing order ' || o.id || ' was paid otherwise than it says'
FROM standing_order o JOIN standing_order_run r ON r.order_id = o.id
LEFT JOIN outgoing_payment p ON p.id = r.outgoing_payment_id
WHERE o.id BETWEEN :first AND :last AND r.state = 'paid' AND (
  p.id IS NULL OR p.wallet_address_id <> o.wallet_address_id OR p.debit > o.most
  OR iif(o.fixed = 'send', p.debit, p.receive) <> o.value
);

-- windows: no standing order has an unpaid date from its next one on, and none waits that pays nothing any more
-- about dates of standing orders, by standing_order.id
SELECT 'date ' || r.window || ' of standing order ' || o.id || ', which is ' || o.state || ', is ' || r.state
  || ' before its time'
FROM standing_order o JOIN standing_order_run r ON r.order_id = o.id
WHERE o.id BETWEEN :first AND :last AND (
  r.window >= o.next_window AND r.state <> 'paid' OR r.state = 'waiting' AND o.state <> 'active'
);
