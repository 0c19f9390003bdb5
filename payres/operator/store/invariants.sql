-- The invariants of movements, refunds and standing orders, in the form of payres/core/store/invariants.sql.
--
-- rows: refunds = refund
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

-- refunds: no more of an incoming payment was sent back than it had received
-- about refunds, by refund.incoming_payment_id, after sending
SELECT 'incoming payment ' || id || ' received ' || received || ', and ' || back || ' of it was sent back'
FROM (
  SELECT i.id, i.received, sum(CASE coalesce(p.state, '')
    WHEN '' THEN r.amount WHEN 'sending' THEN p.debit ELSE p.sent + p.unresolved_debit END) AS back
  FROM refund r LEFT JOIN outgoing_payment p ON p.id = r.return_payment_id
  JOIN incoming_payment i ON i.id = r.incoming_payment_id
  WHERE r.incoming_payment_id BETWEEN :first AND :last GROUP BY i.id
) WHERE back > received;

-- refunded: each refund left the receiver's wallet and came back to the payer's as it says, or a payment sends it
-- about refunds, by refund.id
SELECT 'refund ' || r.id || ' of ' || r.amount || ', returned as ' || r.returned || ', was transferred otherwise'
FROM refund r JOIN incoming_payment i ON i.id = r.incoming_payment_id
JOIN outgoing_payment o ON o.id = r.outgoing_payment_id
JOIN wallet_address w ON w.id = i.wallet_address_id JOIN wallet_address v ON v.id = o.wallet_address_id
LEFT JOIN transfer t ON t.refund_id = r.id WHERE r.id BETWEEN :first AND :last
GROUP BY r.id HAVING sum(iif(t.debit_account_id = w.account_id, t.amount, 0)) <> r.amount
  OR sum(iif(t.credit_account_id = v.account_id, t.amount, 0)) <> r.returned
UNION ALL SELECT 'refund ' || r.id || ' is not what outgoing payment ' || p.id || ' sends'
FROM refund r LEFT JOIN outgoing_payment p ON p.id = r.return_payment_id
JOIN incoming_payment i ON i.id = r.incoming_payment_id
WHERE r.id BETWEEN :first AND :last AND (p.debit <> r.amount OR p.wallet_address_id <> i.wallet_address_id);

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
