-- The invariants of peers and packets, in the form of payres/core/store/invariants.sql.
--
-- rows: packets in flight = packet WHERE state = 'prepared'

-- sides: each transfer is between accounts of the kinds that it should be, and of the peers of its packet
-- about transfers, by transfer.id, after transfers
SELECT 'transfer ' || t.id || ' (' || t.kind || ') went from account ' || d.id || ' (' || d.kind
  || ') to account ' || c.id || ' (' || c.kind || ')'
FROM transfer t JOIN account d ON d.id = t.debit_account_id JOIN account c ON c.id = t.credit_account_id
LEFT JOIN packet k ON k.id = t.packet_id
LEFT JOIN peer source ON source.id = k.from_peer_id LEFT JOIN peer target ON target.id = k.to_peer_id
WHERE t.id BETWEEN :first AND :last AND (
  (t.kind = 'fee') <> (c.kind = 'fees' AND d.kind <> 'external') -- an undone withdrawal of fees comes from there
  OR (t.kind IN ('deposit', 'withdrawal')) <> ('external' IN (d.kind, c.kind))
  OR (k.id IS NOT NULL AND d.kind = 'peer' AND d.id IS NOT source.account_id)
  OR (k.id IS NOT NULL AND c.kind = 'peer' AND c.id IS NOT target.account_id)
);

-- accounts: each wallet and each peer has an account of its kind, a wallet in its asset, and no other does
-- about accounts, by account.id
SELECT 'account ' || a.id || ' (' || a.kind || ') is that of '
  || coalesce('wallet ' || w.path, 'peer ' || p.name, 'no wallet and no peer')
FROM account a LEFT JOIN wallet_address w ON w.account_id = a.id LEFT JOIN peer p ON p.account_id = a.id
WHERE a.id BETWEEN :first AND :last AND (
  (a.kind = 'wallet') <> (w.id IS NOT NULL) OR (a.kind = 'peer') <> (p.id IS NOT NULL)
  OR w.asset_id <> a.asset_id
);

-- decided: no hold of a packet with a known outcome is open
-- about open holds, after sending
SELECT 'hold ' || r.id || ' still has ' || r.remaining || ' for the ' || k.state || ' packet ' || k.id
FROM hold r JOIN packet k ON k.id = r.packet_id WHERE r.remaining > 0 AND k.state <> 'prepared';

-- under_way: each packet in flight holds its amounts: the inbound peer's, and liquidity where the assets differ
-- about packets in flight
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
);

-- promised: what each payment in flight holds covers its packets in flight
-- about outgoing payments in flight
SELECT 'outgoing payment ' || p.id || ' has more in packets in flight than it holds'
FROM outgoing_payment p JOIN wallet_address w ON w.id = p.wallet_address_id
WHERE p.state = 'sending' AND (
  SELECT coalesce(sum(k.source_amount), 0) FROM packet k
  WHERE k.outgoing_payment_id = p.id AND k.state = 'prepared'
) > (
  SELECT coalesce(sum(r.remaining), 0) FROM hold r
  WHERE r.outgoing_payment_id = p.id AND r.account_id = w.account_id
) - p.fee;
