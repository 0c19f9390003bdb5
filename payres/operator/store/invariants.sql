-- The invariants of movements, in the form of payres/core/store/invariants.sql.

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
