-- What a restore brings back, in statements that compare two files: `main` is the copy, `old` the database. Each gives
-- the name and the words about it, then what carrying it over needs. A `{name}` stands for a part.

-- Changes by owners and operators that the copy lacks; read once, because there may be many.
-- part: since
since AS MATERIALIZED
  (SELECT a.action, a.object FROM old.audit a WHERE NOT EXISTS (SELECT 1 FROM main.audit b WHERE b.id = a.id))

-- The owners and operators of the copy, with the ids that they have in the database. One whose wallets were connected
-- since has the factors of the owner that they belong to by now.
-- part: account
account AS (SELECT w.owner_id owner_id, NULL operator_id, w.path name, o.owner_id old_owner, NULL old_operator
    FROM main.wallet_address w JOIN old.wallet_address o ON o.id = w.id AND o.created_at = w.created_at
    WHERE w.id = (SELECT min(id) FROM main.wallet_address x WHERE x.owner_id = w.owner_id)
    UNION ALL SELECT NULL, p.id, p.name, NULL, o.id FROM main.operator p JOIN old.operator o ON o.name = p.name)

-- part: of_account
(o.owner_id = a.old_owner OR o.operator_id = a.old_operator)

-- part: recovery
(SELECT json_group_array(hex(hash)) FROM old.recovery_code o WHERE used_at IS NULL AND {of_account}) recovery

-- part: same_wallet
JOIN old.wallet_address o ON o.id = w.id AND o.created_at = w.created_at

-- part: same_peer
JOIN old.peer o ON o.id = p.id AND o.name = p.name AND o.created_at = p.created_at

-- The audit log names an owner by a wallet.
-- part: names
(SELECT a.name UNION ALL SELECT path FROM old.wallet_address WHERE owner_id = a.old_owner)

-- part: verb
substr(action, instr(action, '.') + 1)

-- ended: grant
SELECT g.id name, 'of ' || c.identity || coalesce(' for ' || w.path, '') about
FROM main."grant" g JOIN old."grant" o ON o.id = g.id JOIN main.client c ON c.id = g.client_id
LEFT JOIN main.wallet_address w ON w.id = g.wallet_address_id
WHERE o.state IN ('revoked', 'denied') AND g.state IN ('pending', 'approved', 'issued') ORDER BY g.id;

-- An ended token may have been deleted since: then its grant has one that the copy lacks. One that was rotated has
-- not ended while nobody has used the new token: its client may have nothing else.
-- ended: token
SELECT g.id name, 'a token of ' || c.identity about, t.id token
FROM main.access_token t JOIN main."grant" g ON g.id = t.grant_id JOIN old."grant" o ON o.id = g.id
JOIN main.client c ON c.id = g.client_id
WHERE t.revoked_at IS NULL AND g.state = 'issued' AND o.state = 'issued'
  AND NOT EXISTS (SELECT 1 FROM old.access_token k WHERE k.id = t.id AND k.revoked_at IS NULL OR k.answers = t.id)
  AND EXISTS (SELECT 1 FROM old.access_token k WHERE k.grant_id = g.id
    AND (k.id = t.id OR NOT EXISTS (SELECT 1 FROM main.access_token WHERE id = k.id)))
ORDER BY g.id;

-- ended: key
SELECT k.kid name, 'of ' || w.path about, w.path path
FROM main.wallet_key k JOIN old.wallet_key o ON o.id = k.id AND o.x = k.x
JOIN main.wallet_address w ON w.id = k.wallet_address_id
WHERE k.revoked_at IS NULL AND o.revoked_at NOTNULL ORDER BY w.path, k.kid;

-- ended: apiKey
SELECT k.id name, k.name about FROM main.api_key k JOIN old.api_key o ON o.id = k.id
WHERE k.revoked_at IS NULL AND o.revoked_at NOTNULL ORDER BY k.id;

-- Before passwords: then each is that of the wallet's own owner.
-- ended: separation
WITH {since}
SELECT w.path name, 'was separated from other wallets' about FROM main.wallet_address w {same_wallet}
WHERE w.owner_id <> o.owner_id AND (SELECT count(*) FROM main.wallet_address x WHERE x.owner_id = w.owner_id) > 1
  AND EXISTS (SELECT 1 FROM since WHERE object = w.path AND action = 'wallet.separate') ORDER BY w.path;

-- Once for each owner, who may have several wallets. One whose wallets were connected had a password that ended.
-- ended: password
WITH {since}
SELECT min(w.path) name, iif(q.password_hash IS NULL, 'the sign-in was closed', 'the password was changed') about,
  q.password_hash hash
FROM main.wallet_address w {same_wallet} JOIN main.owner p ON p.id = w.owner_id JOIN old.owner q ON q.id = o.owner_id
WHERE p.password_hash NOTNULL AND q.password_hash IS NOT p.password_hash AND EXISTS (SELECT 1 FROM since
  WHERE object = w.path AND action IN ('wallet.set_password', 'wallet.connect', 'wallet.not_me'))
GROUP BY p.id, q.id ORDER BY 1;

-- After passwords, since a new one lets new browsers in. Not what was over when the database was last changed.
-- ended: keptOut
WITH {since}
SELECT min(w.path) name, 'new browsers are kept out, by the link in a mail' about, p.id id, q.closed_until closed_until
FROM main.wallet_address w {same_wallet} JOIN main.owner p ON p.id = w.owner_id JOIN old.owner q ON q.id = o.owner_id
WHERE q.password_hash NOTNULL AND q.closed_until > coalesce(p.closed_until, 0)
  AND q.closed_until > (SELECT max(created_at) FROM old.audit)
  AND EXISTS (SELECT 1 FROM since WHERE object = w.path AND action = 'wallet.not_me')
GROUP BY p.id, q.id ORDER BY 1;

-- ended: operator
WITH {since}
SELECT p.name name, iif(o.id IS NULL, 'was removed', 'the password or role was changed') about, o.password_hash hash,
  o.role role, iif(a.id IS NULL, NULL, o.refund_limit) refund_limit, a.id refund_asset_id
FROM main.operator p LEFT JOIN old.operator o ON o.name = p.name LEFT JOIN main.asset a ON a.id = o.refund_asset_id
WHERE (p.password_hash IS NOT o.password_hash OR p.role IS NOT o.role OR p.refund_limit IS NOT o.refund_limit
  OR p.refund_asset_id IS NOT o.refund_asset_id) AND EXISTS (SELECT 1 FROM since
  WHERE object = p.name AND action IN ('admin.link', 'admin.set_password', 'admin.role', 'admin.remove'))
ORDER BY p.name;

-- ended: wallet
WITH {since}
SELECT w.path name, 'was deactivated' about FROM main.wallet_address w {same_wallet}
WHERE w.state = 'active' AND o.state = 'inactive'
  AND EXISTS (SELECT 1 FROM since WHERE object = w.path AND action = 'wallet.deactivate') ORDER BY w.path;

-- ended: frozenClient
WITH {since}
SELECT o.client name, 'was frozen' about FROM old.frozen_client o
WHERE NOT EXISTS (SELECT 1 FROM main.frozen_client c WHERE c.client = o.client)
  AND EXISTS (SELECT 1 FROM since WHERE object = o.client) ORDER BY o.client;

-- ended: peer
SELECT p.name name, 'was removed' about FROM main.peer p {same_peer}
WHERE p.removed_at IS NULL AND o.removed_at NOTNULL ORDER BY p.name;

-- ended: peerTokens
WITH {since}
SELECT p.name name, 'the tokens or the URL were changed' about, p.id id, o.url url,
  o.incoming_token_hash incoming_token_hash, o.outgoing_token outgoing_token
FROM main.peer p {same_peer}
WHERE p.removed_at IS NULL AND o.removed_at IS NULL
  AND (p.incoming_token_hash <> o.incoming_token_hash OR p.url <> o.url)
  AND EXISTS (SELECT 1 FROM since WHERE object = p.name AND action = 'peer.change') ORDER BY p.name;

-- ended: peerLimits
WITH {since}
SELECT p.name name, 'the credit limit or packet limit was lowered' about,
  iif(a.floor < b.floor, b.floor, NULL) floor,
  iif(coalesce(p.max_packet > o.max_packet, p.max_packet IS NULL), o.max_packet, NULL) max_packet
FROM main.peer p {same_peer} JOIN main.account a ON a.id = p.account_id JOIN old.account b ON b.id = o.account_id
WHERE p.removed_at IS NULL AND o.removed_at IS NULL
  AND (a.floor < b.floor OR coalesce(p.max_packet > o.max_packet, p.max_packet IS NULL AND o.max_packet NOTNULL))
  AND EXISTS (SELECT 1 FROM since WHERE object = p.name AND action = 'peer.change') ORDER BY p.name;

-- The state is NULL of one that was removed, or whose removal had begun.
-- ended: webhook
WITH {since}, removed AS (SELECT object id FROM since WHERE action = 'webhook.remove')
SELECT h.id name, h.url about, iif(h.id IN removed, NULL, o.state) state, o.secret secret,
  o.previous_secret previous_secret, o.previous_until previous_until
FROM main.webhook h LEFT JOIN old.webhook o ON o.id = h.id
WHERE h.id IN removed OR h.state <> 'disabled' AND (o.state = 'disabled' OR EXISTS (SELECT 1 FROM since
  WHERE object = h.id AND (action = 'webhook.rotate' AND h.secret <> o.secret
    OR action = 'webhook.pause' AND h.state = 'active' AND o.state = 'paused'))) ORDER BY h.id;

-- ended: standingOrder
WITH {since}
SELECT s.id name, 'of ' || w.path || ' to ' || s.payee about, o.state state, o.ended_at ended_at,
  NULL problem, NULL next_at
FROM main.standing_order s JOIN old.standing_order o ON o.id = s.id
JOIN main.wallet_address w ON w.id = s.wallet_address_id
WHERE s.ended_at IS NULL AND (o.ended_at NOTNULL OR s.state = 'active' AND o.state = 'paused'
  AND EXISTS (SELECT 1 FROM since WHERE object = s.id AND action = 'order.pause')) ORDER BY s.id;

-- Null asks as 0 does, and whichever asks for more is the safe one: so it need not be known which is the later.
-- ended: askedAbove
SELECT w.path name, 'asked for the second step from a lower limit on' about, w.id id, o.asked_above asked_above
FROM main.wallet_address w {same_wallet} WHERE coalesce(w.asked_above, 0) > coalesce(o.asked_above, 0)
ORDER BY w.path;

-- ended: mailAddress
WITH {since}, {account}
SELECT a.name, 'the address was changed or taken away' about, a.owner_id, o.email, o.confirmed_at, o.language,
  o.time_zone
FROM account a JOIN old.mail_address o ON o.owner_id = a.old_owner
LEFT JOIN main.mail_address m ON m.owner_id = a.owner_id
WHERE m.email IS NOT o.email
  AND EXISTS (SELECT 1 FROM since WHERE {verb} = 'change_notices' AND object IN {names}) ORDER BY a.name;

-- What is missing was removed, or the backup is the newer one.
-- ended: passkey
WITH {since},
  p AS (SELECT p.*, coalesce((SELECT name FROM main.operator WHERE id = p.operator_id),
    (SELECT path FROM main.wallet_address w WHERE w.owner_id = p.owner_id ORDER BY id LIMIT 1)) of FROM main.passkey p)
SELECT p.id name, 'of ' || p.of about, o.suspect_at suspect_at FROM p LEFT JOIN old.passkey o ON o.id = p.id
WHERE p.suspect_at IS NULL AND o.suspect_at NOTNULL OR o.id IS NULL AND EXISTS (SELECT 1 FROM since
  WHERE object = p.of AND {verb} IN ('passkey_removed', 'codes_off', 'factors_removed', 'remove', 'connect'))
ORDER BY p.id;

-- Codes that are missing were replaced, or the backup is the newer one.
-- ended: recoveryCodes
WITH {since},
  code AS (SELECT r.*, coalesce((SELECT name FROM main.operator WHERE id = r.operator_id),
    (SELECT path FROM main.wallet_address w WHERE w.owner_id = r.owner_id ORDER BY id LIMIT 1)) name
    FROM main.recovery_code r WHERE used_at IS NULL)
SELECT r.name, count(*) || ' used or replaced' about, json_group_array(hex(r.hash)) hashes
FROM code r LEFT JOIN old.recovery_code o ON o.hash = r.hash
WHERE o.used_at NOTNULL OR o.hash IS NULL AND EXISTS (SELECT 1 FROM since WHERE object = r.name
  AND {verb} IN ('recovery_codes', 'codes_off', 'passkey_removed', 'factors_removed'))
GROUP BY r.owner_id, r.operator_id ORDER BY 1;

-- What guards a sign-in by now: after what the copy has too much, so that nothing takes it away again.
-- ended: codes
WITH {since}, {account}
SELECT a.name, 'codes that were turned on since' about, a.owner_id, a.operator_id, o.secret, o.created_at,
  o.confirmed_at, o.last_step, o.wrong, (SELECT value FROM old.secret WHERE name = 'second_factors') encrypted_with,
  {recovery}
FROM account a JOIN old.totp o ON {of_account}
LEFT JOIN main.totp p ON p.owner_id = a.owner_id OR p.operator_id = a.operator_id
WHERE o.confirmed_at NOTNULL AND (p.confirmed_at IS NULL OR p.secret <> o.secret)
  AND EXISTS (SELECT 1 FROM since WHERE {verb} = 'codes_on' AND object IN {names})
ORDER BY a.name;

-- ended: newPasskey
WITH {since}, {account}
SELECT a.name, 'a passkey that was added since' about, a.owner_id, a.operator_id, o.id, o.user_handle, o.credential_id,
  o.public_key, o.sign_count, o.is_backed_up, o.transports, o.name, o.created_at, o.last_used_at,
  {recovery}
FROM account a JOIN old.passkey o ON {of_account} LEFT JOIN main.passkey p ON p.id = o.id
WHERE p.id IS NULL AND o.suspect_at IS NULL
  AND EXISTS (SELECT 1 FROM since WHERE {verb} = 'passkey_added' AND object IN {names}) ORDER BY a.name, o.id;

-- What a restore ends without looking at what was there: nobody can know which of these were ended since.

-- by restore: session
DELETE FROM session;

-- by restore: half_sign_in
DELETE FROM half_sign_in;

-- by restore: password_link
DELETE FROM password_link;

-- The owner of the wallet may have refused.
-- by restore: wallet_join
DELETE FROM wallet_join WHERE joined_at IS NULL;

-- Its owner may have refused it; who has really lost the second step is asked once more, and waits a day longer.
-- by restore: factor_removal
DELETE FROM factor_removal;

-- Browsers stay known, so that nobody is locked out by guesses.
-- by restore: known_browser
UPDATE known_browser SET trusted_until = NULL WHERE trusted_until IS NOT NULL;

-- What was waiting, or falls due before the restore, may have been paid in the state that was replaced, and left it
-- for another server.
-- by restore: standing_order_run
UPDATE standing_order_run SET state = 'missed', problem = 'restored', retry_at = NULL WHERE state = 'waiting';

-- by restore: standing_order
UPDATE standing_order SET not_before = :now WHERE ended_at IS NULL;
UPDATE standing_order SET state = 'ended', ended_at = :now WHERE state = 'active' AND next_at IS NULL;
