-- The whole current schema of a payres database, readable from top to bottom: the core's tables, then those of each part.
--
-- Times are integer microseconds since the Unix epoch, UTC. Amounts requested by clients are decimal text (the full
-- unsigned 64-bit range); ledger amounts are integer, in the asset's minor unit. Identifiers of resources are UUIDv7,
-- so ids are ordered by creation. Tokens are stored as SHA-256 hashes only.
--
-- Tables with many inserts check a state with `=` and `or`: for `in` with more than two values, SQLite builds a table
-- in memory at each insert, which doubles its time.
--
-- Each table says what it promises in the last lines of its comment; a longer line goes on after `--   `. A quantity has
-- the name that it has in the program, as `30 days (DECIDED_GRANT)`; tests/test_schema_promises.py compares them:
--
--   rows: who can cause them, and what bounds that: a limit, `one for each TABLE`, `one row`; of operators nothing.
--   kept: `for good`; or how long, and what deletes them: `by RULE` (of retention) or a function, or `with TABLE`. What
--     begins with the rows that it is about and a colon is a row of the table in docs/reference/retention.md; there may be several.
--   times: what is decided by each: `shown` nothing; `lasts N` how long a right or a pause lasts; `due, at most N ahead`
--     when somebody's work is due; `date` a day of a plan, compared with such days alone; `order` which row is newer, never
--     where money is; `purge` when a retention rule deletes the row. What lasts or is due is compared by functions of
--     clock.py alone, because the clock may have been ahead.
--   restore: what a copy brings back that was ended or protected since: `nothing, because ...`; `listed and carried over
--     as KIND` of ENDED, or `ended by restore: WHAT` by BY_RESTORE, in operator/store/restored_rights.py. There may be several.
--
-- A change here also needs a new numbered file in payres/core/store/migrations/; its __init__.py says how. A test checks
-- that those files together give this schema.

-- ==== The core ====

-- The server's own secrets, such as the STREAM secret.
-- rows: the server, one for each name in the program
-- kept: for good
-- times: none
-- restore: nothing, because secrets do not end
create table secret (
  name text primary key,
  value blob not null
) strict, without rowid;

-- Currencies and other assets of accounts, with the fee for sending from a wallet in that asset.
-- rows: operators
-- kept: for good
-- times: none
-- restore: nothing, because payers see a fee before they pay; operators are told to look for later ones
create table asset (
  id integer primary key,
  code text not null check (length(code) between 1 and 32),
  scale integer not null check (scale between 0 and 255),
  fee_fixed integer not null default 0 check (fee_fixed >= 0),
  fee_basis_points integer not null default 0 check (fee_basis_points between 0 and 9999),
  unique (code, scale)
) strict;

-- Exchange rates: one unit of the base buys `rate` units of the counter, an exact decimal. expires_at is null for rates
-- that the operator set; those of a rates service expire.
-- rows: operators; the server, one for each asset with another
-- kept: until it is replaced or removed, by assets.remove_rate
-- times: set_at shown; expires_at lasts as long as rates_max_age was at set_at
-- restore: nothing, because payers see a rate before they pay; operators are told to look for later ones
create table exchange_rate (
  base_code text not null,
  counter_code text not null,
  rate text not null,
  set_at integer not null,
  expires_at integer,
  primary key (base_code, counter_code),
  check (base_code <> counter_code)
) strict, without rowid;

-- Ledger accounts. balance is credits minus debits; held is the sum of open holds; balance minus held may not fall
-- below floor, which is null for the external account (the outside world). An event is written when the free balance
-- falls below warn_below; warned stays set until twice as much is free.
-- rows: operators; one for each wallet_address and peer
-- kept: for good
-- times: none
-- restore: listed and carried over as peerLimits
create table account (
  id integer primary key,
  kind text not null check (kind in ('wallet', 'liquidity', 'fees', 'peer', 'external')),
  asset_id integer not null references asset,
  balance integer not null default 0,
  held integer not null default 0 check (held >= 0),
  floor integer default 0,
  warn_below integer,
  warned integer not null default 0 check (warned in (0, 1)),
  check (floor is null or balance - held >= floor),
  check ((kind = 'external') = (floor is null))
) strict;
create unique index account_of_operator on account (asset_id, kind) where kind in ('liquidity', 'fees', 'external');
create index account_of_asset on account (asset_id);

-- People with wallets, each with one or more. unlocked_at is when the counts of wrong passwords were last reset. Until
-- closed_until, only browsers that it knows let the owner sign in; without a password it is when the link of a mail
-- or a separation closed the sign-in, null if there was none yet.
-- rows: operators
-- kept: until the wallets are connected to another owner's, by owners.take_over
-- times: unlocked_at lasts 15 minutes (guesses.WINDOW); closed_until lasts 1 day (owners.CLOSED); created_at shown
-- restore: listed and carried over as password
-- restore: listed and carried over as keptOut
create table owner (
  id integer primary key,
  password_hash text,
  unlocked_at integer,
  created_at integer not null,
  closed_until integer
) strict;

-- Wallet addresses. path is the part after the base URL, lower-case; the owner signs in with any of them and the password.
-- tag stands for the wallet in ILP addresses, which never end: ids are used again after a restore, and tags are not. Wallets
-- from before version 42 have the id as their tag, which the addresses that were handed out have. path_as_read and
-- name_as_read are what `as_read` gives for the path and the public name: no name is chosen that is read like either of
-- another owner's wallet.
-- rows: operators
-- kept: for good
-- times: created_at shown
-- restore: listed and carried over as wallet
-- restore: listed and carried over as askedAbove
-- restore: listed and carried over as separation
create table wallet_address (
  id integer primary key,
  path text not null unique,
  public_name text,
  asset_id integer not null references asset,
  account_id integer not null unique references account,
  owner_id integer not null references owner,
  state text not null default 'active' check (state in ('active', 'inactive')),
  created_at integer not null,
  asked_above integer check (asked_above >= 0),
  tag text not null unique,
  path_as_read text not null default '',
  name_as_read text
) strict;
create index wallet_of_owner on wallet_address (owner_id);
create index wallet_by_path_as_read on wallet_address (path_as_read);
create index wallet_by_name_as_read on wallet_address (name_as_read) where name_as_read is not null;

-- Public Ed25519 keys of local wallet addresses; x is the base64url of the 32 bytes, as in a JWK. A kid may be reused
-- after its key was revoked. name is for the operator, not shown to clients.
-- rows: operators; owners, at most 32 (MAX_JWKS_KEYS) in force for each wallet_address, and 240
--   (MAX_FORMS_OF_OWNER) an hour that they add and revoke
-- kept: for good, because clients' grants name the key that asked for them
-- times: created_at, revoked_at shown
-- restore: listed and carried over as key
create table wallet_key (
  id integer primary key,
  wallet_address_id integer not null references wallet_address,
  kid text not null,
  x text not null,
  created_at integer not null,
  revoked_at integer,
  name text
) strict;
create unique index wallet_key_in_force on wallet_key (wallet_address_id, kid) where revoked_at is null;
create index wallet_key_of_wallet on wallet_key (wallet_address_id);

-- Clients. identity is the wallet address (normalised), or the RFC 7638 thumbprint of the key that the client
-- presented. At purge_at the client is deleted unless something refers to it; null while something does.
-- rows: anybody, at most 50 (rate_limit_unauthenticated) a second of an address
-- kept: a client without grants, payments and quotes, with its keys: 1 day (UNUSED_CLIENT) after it was first seen, or
--   with its last grant, quote or incoming payment, by retention.CLIENTS
-- times: created_at shown; purge_at purge
-- restore: nothing, because the rights of a client are its grants
create table client (
  id integer primary key,
  identity text not null unique,
  wallet_address text,
  jwk text,
  created_at integer not null,
  purge_at integer,
  check ((wallet_address is null) <> (jwk is null))
) strict;
create index client_to_purge on client (purge_at) where purge_at is not null;

-- Clients whose grants pay nothing, by their identity, also if `client` has no row of it.
-- rows: operators
-- kept: until it is unfrozen, by clients.unfreeze
-- times: frozen_at shown
-- restore: listed and carried over as frozenClient
create table frozen_client (
  client text primary key,
  frozen_at integer not null
) strict, without rowid;

-- Keys of clients without a local wallet. Those of a wallet address on another server were fetched from its jwks.json,
-- and expire at good_until. A client known only by its key has a row for each of the last kids it presented.
-- rows: clients, at most 32 (MAX_JWKS_KEYS) published and 8 (MAX_PRESENTED_KIDS) presented for each client
-- kept: with client, by _delete_client
-- times: fetched_at order; good_until lasts 1 minute (REMOTE_KEY_LIFETIME)
-- restore: nothing, because keys of other servers are fetched again after a minute
create table client_key (
  client_id integer not null references client,
  kid text not null,
  x text not null,
  fetched_at integer not null,
  good_until integer,
  primary key (client_id, kid)
) strict, without rowid;

-- Nonces of signatures that may still be fresh; each can be used once with a client's key.
-- rows: clients, at most 10,000 (rate_limit_per_client) a second
-- kept: signature nonces: 5 minutes after their signatures became too old, by retention.NONCES
-- times: expires_at lasts 5 minutes (signature_max_age)
-- restore: nothing, because what was done with a nonce since is lost, and may be done again while its signature is
--   fresh
create table signature_nonce (
  client_id integer not null references client,
  kid text not null,
  nonce text not null,
  expires_at integer not null,
  primary key (client_id, kid, nonce)
) strict, without rowid;
create index signature_nonce_expiry on signature_nonce (expires_at);

-- Grants. access is the JSON array of access items exactly as granted. States change one way: pending -> approved ->
-- issued, pending -> denied, and any but denied -> revoked. The row may be deleted at purge_at, which becomes null once
-- the grant was issued with consent or has created something. kid is the key that signed the request; null for grants
-- from before version 23.
-- rows: anybody, at most 50 (rate_limit_unauthenticated) a second of an address
-- kept: a grant given without consent, with which nothing was created: 1 day (UNUSED_GRANT) after its last token
--   expired, by retention.GRANTS
-- kept: a request for consent without a decision, or taken back: 1 day (UNUSED_GRANT) after the time to decide, by
--   retention.GRANTS
-- kept: a request for consent that was denied, or approved and not continued: 30 days (DECIDED_GRANT) after that, by
--   retention.GRANTS
-- kept: others: for good
-- times: waits_from lasts 5 seconds (continue_wait); created_at, ended_at shown; purge_at purge
-- restore: listed and carried over as grant
create table "grant" (
  id text primary key,
  client_id integer not null references client,
  client_name text,
  state text not null check (state in ('pending', 'approved', 'issued', 'denied', 'revoked')),
  access text not null,
  subject text,
  wallet_address_id integer references wallet_address,
  continue_hash blob not null,
  waits_from integer not null,
  created_at integer not null,
  ended_at integer,
  purge_at integer,
  kid text
) strict, without rowid;
create index grant_by_state on "grant" (state, id);
create index grant_of_client on "grant" (client_id, kid);
create index grant_of_wallet on "grant" (wallet_address_id, id) where wallet_address_id is not null and state <> 'pending';
create index grant_to_purge on "grant" (purge_at) where purge_at is not null;

-- The interaction of a grant that needs consent. reference is the interact_ref, present from approval until its one
-- use. decided_by is also null for decisions from before version 22. reason is what an operator wrote for the owner.
-- rows: one for each grant
-- kept: with grant, by _delete_grant
-- times: expires_at lasts 10 minutes (interaction_lifetime); decided_at lasts 1 hour (APPROVAL_SECONDS)
-- restore: nothing, because its grant has the decision
create table interaction (
  id text primary key,
  grant_id text not null unique references "grant",
  nonce text not null,
  finish_uri text,
  client_nonce text,
  server_nonce text not null,
  reference text,
  expires_at integer not null,
  decided_at integer,
  decided_by text check (decided_by in ('owner', 'operator')),
  reason text,
  check ((finish_uri is null) = (client_nonce is null))
) strict, without rowid;

-- Access tokens; id is the last part of the manage URL. Until its first use, answers is the token whose rotation, or the
-- grant whose continuation gave it, and sealed its value, encrypted with a key that only what this request presented and
-- the client's key give: the request may be repeated.
-- rows: clients, at most 10,000 (rate_limit_per_client) a second, and 8 (MAX_ENDED_TOKENS) that have ended for each
--   grant
-- kept: rotated and revoked tokens: with their grant; of a grant that stays, all but the last 8 (MAX_ENDED_TOKENS), by
--   purge_ended_tokens
-- times: created_at order; expires_at lasts 10 minutes (access_token_lifetime); revoked_at shown
-- restore: listed and carried over as token
-- restore: nothing, because an answer that can be repeated again tells a client only what it was told before
create table access_token (
  id text primary key,
  grant_id text not null references "grant",
  value_hash blob not null unique,
  created_at integer not null,
  expires_at integer not null,
  revoked_at integer,
  answers text,
  sealed blob check ((answers is null) = (sealed is null))
) strict, without rowid;
create index access_token_of_grant on access_token (grant_id);
create unique index access_token_by_answered on access_token (answers) where answers is not null;

-- The server caches access tokens while the number in this one row is unchanged. Triggers change it with every row that
-- a cached token was read from. It is random, so that a change that is undone and the next one differ. The server
-- caches only tokens of grants that are never purged, and no key of another server, so other grants change nothing. A
-- manual REPLACE goes unnoticed, because SQLite runs no trigger for the row that it deletes.
-- rows: one row
-- kept: for good
-- times: none
-- restore: nothing, because a server that starts has cached nothing
create table authorization_revision (
  id integer primary key check (id = 1),
  revision integer not null
) strict;
insert into authorization_revision values (1, random());
create trigger access_token_changed after update on access_token
  when exists (select 1 from "grant" where id = old.grant_id and purge_at is null)
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger access_token_deleted after delete on access_token
  when exists (select 1 from "grant" where id = old.grant_id and purge_at is null)
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger grant_changed after update of client_id, state, access, purge_at on "grant"
  when old.purge_at is null and old.state in ('issued', 'revoked')
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger grant_deleted after delete on "grant"
  when old.purge_at is null
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger client_changed after update of identity, wallet_address, jwk on client
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger client_frozen after insert on frozen_client
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger client_unfrozen after delete on frozen_client
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger client_deleted after delete on client
  when exists (select 1 from "grant" where client_id = old.id)
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger client_key_changed after update on client_key
  when old.good_until is null and exists (select 1 from "grant" where client_id = old.client_id)
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger client_key_deleted after delete on client_key
  when old.good_until is null and exists (select 1 from "grant" where client_id = old.client_id)
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger wallet_key_changed after update on wallet_key
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger wallet_key_deleted after delete on wallet_key
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger wallet_address_changed after update of path, state on wallet_address
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger wallet_address_deleted after delete on wallet_address
  begin update authorization_revision set revision = random() where id = 1; end;

-- Incoming payments. received is the total paid in; `payres ledger check` compares it with the transfers. The
-- *_event_at columns are the times of the last partial payment event, and of the expiry event; untold_at is when the
-- next partial payment event is due, for what came since the last. listed is the key in the owner's activity list,
-- comparable with the ids of outgoing payments: it starts with the time of the first receipt, or before that is the id,
-- while the payment is open and has an amount. Others are null, and not shown. At purge_at the payment is deleted: it
-- has expired, without an amount and with nothing received. Null for all others.
-- rows: clients, at most 200 (rate_limit_creations) a second; owners, at most 240 (MAX_FORMS_OF_OWNER) an hour, and one
--   for each try of a standing_order_run
-- kept: an incoming payment without an `incomingAmount` that expired and received nothing, with the quotes to it: 7
--   days (EMPTY_PAYMENT_DAYS) after it expired, by retention.INCOMING_PAYMENTS
-- kept: others: for good
-- times: created_at, completed_at, expiry_event_at shown; expires_at lasts as asked; partial_event_at lasts 10 seconds
--   (PARTIAL_EVENT_PAUSE); untold_at due, at most 10 seconds (PARTIAL_EVENT_PAUSE) ahead; purge_at purge
-- restore: nothing, because one that was completed since is open again, and whoever completed it can do so again
create table incoming_payment (
  id text primary key,
  wallet_address_id integer not null references wallet_address,
  client_id integer not null references client,
  incoming_value text check (incoming_value not glob '*[^0-9]*' and length(incoming_value) between 1 and 20),
  received integer not null default 0 check (received >= 0),
  metadata text,
  created_at integer not null,
  expires_at integer not null,
  completed_at integer,
  partial_event_at integer,
  expiry_event_at integer,
  listed text,
  purge_at integer,
  untold_at integer
) strict, without rowid;
create index incoming_payment_of_wallet on incoming_payment (wallet_address_id, id);
create index incoming_payment_of_client on incoming_payment (client_id, wallet_address_id, id);
create index incoming_payment_listed on incoming_payment (wallet_address_id, listed) where listed is not null;
create index incoming_payment_to_expire on incoming_payment (expires_at)
  where completed_at is null and expiry_event_at is null;
create index incoming_payment_untold on incoming_payment (untold_at) where untold_at is not null;
create index incoming_payment_to_purge on incoming_payment (purge_at) where purge_at is not null;

-- Quotes. incoming_payment_id is set if the receiver is local; otherwise path is the probed path to it, as JSON. At
-- purge_at the quote is deleted if unused; null once a payment is known to have used it. wish is the owner's input, as
-- JSON, if the quote was requested on a page; null for a client's quote.
-- rows: clients, at most 200 (rate_limit_creations) a second; owners, at most 240 (MAX_FORMS_OF_OWNER) an hour, and one
--   for each try of a standing_order_run
-- kept: a quote without a payment: 1 day (UNUSED_QUOTE) after it expired, by retention.QUOTES
-- kept: others: for good
-- times: created_at shown; expires_at lasts 15 minutes (quote_lifetime); purge_at purge
-- restore: nothing, because the payment that has used it since is lost
create table quote (
  id text primary key,
  wallet_address_id integer not null references wallet_address,
  client_id integer not null references client,
  receiver text not null,
  incoming_payment_id text references incoming_payment,
  debit_value text not null check (debit_value not glob '*[^0-9]*'),
  receive_value text not null check (receive_value not glob '*[^0-9]*'),
  receive_code text not null,
  receive_scale integer not null check (receive_scale between 0 and 255),
  fee_value text not null check (fee_value not glob '*[^0-9]*'),
  created_at integer not null,
  expires_at integer not null,
  path text,
  purge_at integer,
  wish text
) strict, without rowid;
create index quote_of_client on quote (client_id);
create index quote_to_purge on quote (purge_at) where purge_at is not null;
create index quote_to_incoming_payment on quote (incoming_payment_id) where incoming_payment_id is not null;

-- Outgoing payments. sent has left the wallet, fee included; delivered has arrived at the receiver. window_start is the
-- start of the grant's interval that the payment counts in, 0 if the grant has no interval. path is as in quote.
-- attempts counts the attempts to reach a remote receiver since the last delivery. received_before is what it had
-- received when the payment began, minus what this payment had delivered by then. The unresolved amounts may have been
-- taken and delivered by unresolved packets: they were returned to the payer, and the grant counts them as spent until
-- an operator records that they were not delivered. overlapped is set in payments in flight to a remote receiver when
-- another one to it ends: then what it has received says nothing about either.
-- rows: clients, owners and operators, one for each quote
-- kept: for good
-- times: window_start date; created_at, ended_at shown
-- restore: nothing, because a payment does not end by a decision
create table outgoing_payment (
  id text primary key,
  wallet_address_id integer not null references wallet_address,
  client_id integer not null references client,
  grant_id text references "grant",
  window_start integer not null default 0,
  quote_id text unique references quote,
  receiver text not null,
  incoming_payment_id text references incoming_payment,
  debit integer not null check (debit > 0),
  receive integer not null check (receive > 0),
  receive_code text not null,
  receive_scale integer not null check (receive_scale between 0 and 255),
  fee integer not null check (fee between 0 and debit),
  sent integer not null default 0 check (sent between 0 and debit),
  delivered integer not null default 0 check (delivered >= 0),
  state text not null check (state = 'sending' or state = 'completed' or state = 'failed'),
  failure text,
  metadata text,
  created_at integer not null,
  ended_at integer,
  path text,
  attempts integer not null default 0,
  received_before integer,
  unresolved_debit integer not null default 0 check (unresolved_debit >= 0),
  unresolved_receive integer not null default 0 check (unresolved_receive >= 0),
  estimated integer not null default 0 check (estimated >= 0),
  overlapped integer not null default 0 check (overlapped in (0, 1)),
  check (state <> 'failed' or sent < debit),
  check ((state = 'failed') = (failure is not null)),
  check ((state = 'sending') = (ended_at is null))
) strict, without rowid;
create index outgoing_payment_of_wallet on outgoing_payment (wallet_address_id, id);
create index outgoing_payment_of_client on outgoing_payment (client_id, wallet_address_id, id);
create index outgoing_payment_of_grant on outgoing_payment (grant_id, created_at, sent) where grant_id is not null;
create index outgoing_payment_sending on outgoing_payment (id) where state = 'sending';
create index outgoing_payment_to_incoming_payment on outgoing_payment (incoming_payment_id)
  where incoming_payment_id is not null;
create index outgoing_payment_to_receiver on outgoing_payment (receiver, ended_at) where incoming_payment_id is null;

-- The sums that a grant has spent or holds in each window of its interval, in the sender's asset and each receiver's.
-- rows: clients, one for each window and asset of receivers, for each grant
-- kept: for good, because the grant stays with which something was created
-- times: window_start date; changed_at order
-- restore: nothing, because what was spent since is lost with its payments
create table grant_spending (
  grant_id text not null references "grant",
  window_start integer not null,
  receive_code text not null,
  receive_scale integer not null,
  debit integer not null check (debit >= 0),
  receive integer not null check (receive >= 0),
  changed_at integer not null,
  primary key (grant_id, window_start, receive_code, receive_scale)
) strict, without rowid;

-- Holds of an account's money for an outgoing payment or a packet. remaining is neither posted nor voided.
-- rows: one for each outgoing_payment and packet
-- kept: for good
-- times: created_at shown
-- restore: nothing, because a hold ends with its payment or packet
create table hold (
  id integer primary key,
  account_id integer not null references account,
  outgoing_payment_id text references outgoing_payment,
  packet_id text references packet,
  amount integer not null check (amount > 0),
  remaining integer not null check (remaining between 0 and amount),
  created_at integer not null,
  check ((outgoing_payment_id is null) <> (packet_id is null))
) strict;
create index hold_of_payment on hold (outgoing_payment_id);
create index hold_of_packet on hold (packet_id) where packet_id is not null;
create index hold_open on hold (account_id) where remaining > 0;

-- Transfers of the double-entry ledger, each with its cause. Rows are never changed.
-- rows: at most four for each outgoing_payment, packet, movement and refund
-- kept: for good
-- times: created_at shown
-- restore: nothing, because a transfer does not end
create table transfer (
  id integer primary key,
  debit_account_id integer not null references account,
  credit_account_id integer not null references account,
  amount integer not null check (amount > 0),
  kind text not null check (kind = 'deposit' or kind = 'withdrawal' or kind = 'payment' or kind = 'fee' or kind = 'exchange'),
  hold_id integer references hold,
  outgoing_payment_id text references outgoing_payment,
  incoming_payment_id text references incoming_payment,
  created_at integer not null,
  packet_id text references packet,
  refund_id text references refund,
  check (debit_account_id <> credit_account_id),
  check (hold_id is null or outgoing_payment_id is not null or packet_id is not null)
) strict;
create index transfer_from_account on transfer (debit_account_id);
create index transfer_to_account on transfer (credit_account_id);
create index transfer_to_incoming_payment on transfer (incoming_payment_id) where incoming_payment_id is not null;
create index transfer_of_outgoing_payment on transfer (outgoing_payment_id) where outgoing_payment_id is not null;
create index transfer_of_refund on transfer (refund_id) where refund_id is not null;

-- Idempotency keys of the last day, of clients and API keys, with the response to repeat. path and body_hash (SHA-256)
-- distinguish the request from others with the same key. An owner's form that asks for money has one too.
-- rows: clients, at most 10,000 (rate_limit_per_client) a second; operators; owners, at most 240
--   (MAX_FORMS_OF_OWNER) an hour
-- kept: answers under an `Idempotency-Key`: after 24 hours, by retention.RESPONSES
-- times: created_at lasts 24 hours (retention.RESPONSES.after)
-- restore: nothing, because what was created since is lost
create table idempotency_key (
  id integer primary key,
  client_id integer references client,
  api_key_id text references api_key,
  key text not null,
  path text not null,
  body_hash blob not null,
  response blob not null,
  created_at integer not null,
  check ((client_id is null) <> (api_key_id is null)),
  unique (client_id, key)
) strict;
create unique index idempotency_key_of_api_key on idempotency_key (api_key_id, key) where api_key_id is not null;
create index idempotency_key_age on idempotency_key (created_at);

-- The outbox: events in order. A row is written in the transaction of the change, and never changed. subject is the id
-- of the payment, grant, packet or webhook; data is JSON. wallet_address_id is null for events of no wallet, and for
-- those from before version 26.
-- rows: clients, at most 10,000 (rate_limit_per_client) a second; peers, at most 10,000 (rate_limit_per_peer) a second;
--   owners and operators, some for each grant, transfer and webhook of theirs
-- kept: events and deliveries: after 30 days (events.KEPT), unless one is still to be sent; they do not wait longer for
--   a webhook that is paused or disabled, by delete_old_events
-- times: created_at lasts 3 days (TOO_OLD), in which owners are told
-- restore: nothing, because an event does not end
create table event (
  sequence integer primary key autoincrement,
  type text not null,
  subject text,
  data blob not null,
  created_at integer not null,
  wallet_address_id integer references wallet_address
) strict;

-- The audit log: each change by an operator, in the transaction of the change. actor is `shell:<user>`, `api:<id of the
-- key>`, `page:<name of the operator>`, or `server`; details is a JSON object without secrets. Rows are never changed
-- or deleted.
-- rows: operators; owners, at most 240 (MAX_FORMS_OF_OWNER) an hour, besides what they take away again; one for each
--   grant that they decide on
-- kept: for good
-- times: created_at shown
-- restore: nothing, because the restore compares it
create table audit (
  id text primary key,
  created_at integer not null,
  actor text not null,
  action text not null,
  object text not null,
  details text not null
) strict, without rowid;
create index audit_of_backups on audit (id, created_at) where action = 'database.backup';
create index audit_of_restores on audit (id, created_at) where action = 'database.restore';
create index audit_of_takeovers on audit (id, created_at) where action = 'database.superseded';

-- Runs of the server that were killed: killed_after is the time of the last sign of life. It is null for the current
-- run, whose row is deleted when it ends cleanly. token is random: the lock file has it with the position of the last
-- commit. It is null once it is known that no commit of the run is missing, and for runs from before version 24.
-- rows: the server, one for each time that it was killed
-- kept: one that was killed: for good
-- kept: the current one until it ends, by runs.end
-- times: killed_after lasts 30 days (packets.KEPT)
-- restore: nothing, because a run is of one file
create table server_run (
  id integer primary key,
  killed_after integer,
  token text
) strict;

-- One row: when the ledger's invariants were last checked, and the first that was broken then, or null.
-- rows: one row
-- kept: for good
-- times: checked_at lasts 1 day (CHECK_DAYS)
-- restore: nothing, because the restored database is checked again
create table ledger_check (
  id integer primary key check (id = 1),
  checked_at integer not null,
  broken text
) strict;

-- ==== The agenda ====

-- Due rows whose step has failed so often, one after the other: label is the key in the table of the kind, party for whom
-- the row is, was_due_at when it was due: at another time it is tried in any case. Else it is tried at again_at, never if
-- that is null: it is set aside.
-- rows: the server, one for each due row whose step has failed, which its own table bounds
-- kept: why due work could not be done: 30 days after its first fault, by agenda.KEPT
-- times: failing_since, was_due_at shown; again_at due, at most 1 hour (agenda.FAULT_PAUSES) ahead
-- restore: nothing, because each is tried once at the start
create table fault (
  kind text not null,
  label text not null,
  party any not null,
  faults integer not null check (faults > 0),
  failing_since integer not null,
  again_at integer,
  was_due_at integer not null,
  error text not null,
  primary key (kind, label)
) strict, without rowid;
create index fault_age on fault (failing_since);
create index fault_due on fault (kind, again_at) where again_at is not null;

-- ==== Interledger ====

-- Interledger peers. The account's balance is what we owe the peer (if negative, what the peer owes us, at most its
-- credit limit). outgoing_token is encrypted, incoming_token_hash is a SHA-256; max_packet limits the amount of a
-- packet from the peer. repeats_answers: the peer echoes our Request-Ids, so it may be asked again for a lost answer.
-- rows: operators
-- kept: for good, also one that was removed
-- times: last_error_at lasts 1 day (clock.DAY); created_at, removed_at shown
-- restore: listed and carried over as peer
-- restore: listed and carried over as peerTokens
-- restore: listed and carried over as peerLimits
create table peer (
  id integer primary key,
  name text not null,
  account_id integer not null unique references account,
  ilp_address text not null,
  url text not null,
  outgoing_token blob not null,
  incoming_token_hash blob not null,
  max_packet integer check (max_packet > 0),
  packets_received integer not null default 0,
  packets_sent integer not null default 0,
  last_error text,
  last_error_at integer,
  created_at integer not null,
  removed_at integer,
  repeats_answers integer not null default 0 check (repeats_answers in (0, 1)),
  note text
) strict;
create unique index peer_in_force on peer (name) where removed_at is null;
create unique index peer_by_token on peer (incoming_token_hash) where removed_at is null;

-- ILP address prefixes reached through a peer, including its own address.
-- rows: operators
-- kept: until it is removed, by peers.change_peer
-- times: none
-- restore: nothing, because a route gives nobody a right: operators look at those of a peer
create table peer_route (
  prefix text not null,
  peer_id integer not null references peer,
  primary key (prefix, peer_id)
) strict, without rowid;
create index peer_route_of_peer on peer_route (peer_id);

-- Money packets sent to a peer, of our own payments or from another peer; id is the Request-Id of the exchange.
-- source_amount is in the payer's asset, amount in the peer's. minimum, of our own payments, is what the receiver got of
-- it at least, if it was fulfilled. prepare is the packet as sent, while its outcome may still be found out. An operator resolves packets that stay unresolved (`doubtful`).
-- rows: peers, at most 10,000 (rate_limit_per_peer) a second; at most 64 (MAX_SENT) in flight for each peer
-- kept: for good
-- times: expires_at lasts 30 seconds (LONGEST_LIFE)
-- restore: nothing, because packets since are lost, and balances are compared with the peer
create table packet (
  id text primary key,
  to_peer_id integer not null references peer,
  outgoing_payment_id text references outgoing_payment,
  from_peer_id integer references peer,
  from_request_id text,
  source_amount integer not null check (source_amount > 0),
  amount integer not null check (amount > 0),
  prepare blob,
  expires_at integer not null,
  state text not null check (state = 'prepared' or state = 'fulfilled' or state = 'rejected' or state = 'doubtful'),
  minimum integer not null default 0 check (minimum >= 0),
  check ((outgoing_payment_id is null) <> (from_peer_id is null)),
  check ((state = 'prepared') = (prepare is not null))
) strict, without rowid;
create index packet_prepared on packet (id) where state = 'prepared';
create index packet_doubtful on packet (to_peer_id) where state = 'doubtful';
create index packet_of_payment on packet (outgoing_payment_id, state) where outgoing_payment_id is not null;
create index packet_of_request on packet (from_peer_id, from_request_id) where from_request_id is not null;

-- Answers to fulfilled packets of peers that send a Request-Id, so that a repeated request gets the same answer.
-- rows: peers, at most 10,000 (rate_limit_per_peer) a second
-- kept: answers to fulfilled packets of peers: after 30 days, by ANSWERS
-- times: answered_at purge
-- restore: nothing, because the packets since are lost with their answers
create table answered_request (
  peer_id integer not null references peer,
  request_id text not null,
  condition blob not null,
  reply blob not null,
  answered_at integer not null,
  primary key (peer_id, request_id)
) strict, without rowid;
create index answered_request_age on answered_request (answered_at);

-- Answers to rejected packets with a Request-Id, until the packets expire: the peer's payer has the money back, so a
-- repeated request must not be fulfilled any more.
-- rows: peers, at most 10,000 (rate_limit_per_peer) a second
-- kept: answers to rejected packets of peers: when the packet has expired, after 10 minutes (MAX_REJECT_SECONDS) at
--   most, by REJECTS
-- times: purge_at purge
-- restore: nothing, because such packets have expired by then
create table rejected_request (
  peer_id integer not null references peer,
  request_id text not null,
  condition blob not null,
  reply blob not null,
  purge_at integer not null,
  primary key (peer_id, request_id)
) strict, without rowid;
create index rejected_request_purge on rejected_request (purge_at);

-- What this server has made on other servers and ends there: the incoming payment at url, when the outgoing payment of
-- this id has ended, and the grant of the checkout of this id (in hexadecimal) by its continuation at url, with the
-- encrypted token. due_at is null while the payment is under way. problem is why the last of the attempts failed, and
-- refusals how many of the last ones in a row were refused. The row goes when that has ended.
-- rows: one for each outgoing_payment; one for each checkout
-- kept: incoming payments and grants on other servers that are still to be ended there: until they are; 30 days
--   (remote_resources.END_FOR) after they were made at the latest, if tried often enough, by remote_resources.forget
-- times: noted_at lasts 30 days (remote_resources.END_FOR); due_at due, at most 1 day (remote_resources.LONGEST) ahead
-- restore: nothing, because what has ended there is ended again without effect
create table made_elsewhere (
  id text primary key,
  kind text not null check (kind = 'incoming-payment' or kind = 'grant'),
  url text not null,
  noted_at integer not null,
  token blob,
  due_at integer,
  attempts integer not null default 0,
  refusals integer not null default 0,
  problem text,
  check ((kind = 'grant') = (token is not null))
) strict, without rowid;
create index made_elsewhere_due on made_elsewhere (due_at, id) where due_at is not null;
create index made_elsewhere_being_paid on made_elsewhere (url) where due_at is null;
create index made_elsewhere_due_of_server
  on made_elsewhere (substr(url, 1, 7 + instr(substr(url || '/', 9), '/')), due_at) where due_at is not null;

-- ==== Webhooks ====

-- Webhooks. events are comma-separated names and patterns. Each event up to cursor was attempted once or is not wanted;
-- those that are sent again have a row in delivery. While a webhook is paused, or disabled because it answered 410,
-- events wait. Secrets are encrypted; previous_secret also signs until previous_until. last_status and last_error are of
-- the latest attempt. wallet_address_id is null for the operator's own; another is its owner's, for that wallet's events:
-- due_at is when the first of its deliveries is due.
-- rows: operators, at most 16 (MAX_WEBHOOKS); owners, at most 5 (MAX_WEBHOOKS_OF_WALLET) for each wallet_address
-- kept: until it is removed, by delete_webhook
-- times: previous_until lasts 24 hours (ROTATION_HOURS); due_at due, at
--   most 2 days (webhooks.LONGEST_PAUSE) ahead; created_at, last_attempt_at shown
-- restore: listed and carried over as webhook
create table webhook (
  id text primary key,
  name text,
  url text not null,
  events text not null,
  is_private integer not null check (is_private in (0, 1)),
  state text not null default 'active' check (state in ('active', 'paused', 'disabled')),
  secret blob not null,
  previous_secret blob,
  previous_until integer,
  cursor integer not null,
  created_at integer not null,
  last_attempt_at integer,
  last_status integer,
  last_error text,
  wallet_address_id integer references wallet_address,
  due_at integer
) strict, without rowid;
create index webhook_of_wallet on webhook (wallet_address_id);
create index webhook_due on webhook (due_at) where due_at is not null and state = 'active';

-- The last event that was looked at for the webhooks of wallets. One of these gets nothing but rows in delivery: each
-- event of the wallet since the webhook's cursor, which is when it was added.
-- rows: one row
-- kept: for good
-- times: none
-- restore: nothing, because it counts the events of this file
create table wallet_event (
  id integer primary key check (id = 1),
  cursor integer not null
) strict;

-- Wallets take turns: of a wallet with a row here, each event up to this cursor was attempted once or is not wanted,
-- although the webhook's own cursor is lower. wallet_address_id is 0 for events of no wallet.
-- rows: one for each webhook and wallet_address
-- kept: until the webhook has passed it, by webhooks.advance
-- times: none
-- restore: nothing, because it counts the events of this file
create table webhook_turn (
  webhook_id text not null references webhook,
  wallet_address_id integer not null,
  cursor integer not null,
  primary key (webhook_id, wallet_address_id)
) strict, without rowid;
create index webhook_turn_cursor on webhook_turn (webhook_id, cursor);

-- Events that a webhook did not accept at the first attempt, or that are sent again; next_at is when a pending one is
-- due.
-- rows: one for each event and webhook
-- kept: with event, by webhooks.release_events
-- times: next_at due, at most 1 day (RETRY_PAUSES, MAX_RETRY_AFTER_SECONDS) and a tenth ahead; last_attempt_at shown
-- restore: nothing, because what was sent since may be sent again
create table delivery (
  sequence integer not null references event,
  webhook_id text not null references webhook,
  state text not null check (state = 'pending' or state = 'delivered' or state = 'failed'),
  attempts integer not null,
  next_at integer,
  last_attempt_at integer,
  last_status integer,
  last_error text,
  primary key (sequence, webhook_id),
  check ((state = 'pending') = (next_at is not null))
) strict, without rowid;
create index delivery_due on delivery (webhook_id, next_at) where next_at is not null;
create index delivery_changed on delivery (webhook_id, coalesce(last_attempt_at, next_at)) where next_at is not null;
create index delivery_of_webhook on delivery (webhook_id, state, sequence);

-- The last attempts to send events to each webhook, in the order of number. attempt counts those at the same event;
-- answer is the beginning of the answer's body. The events may have been deleted.
-- rows: at most 20 (MAX_KEPT_ATTEMPTS) for each webhook
-- kept: attempts to send events to a webhook: when there are 20 (MAX_KEPT_ATTEMPTS) later ones, by add_attempts
-- times: at shown
-- restore: nothing, because it says what happened
create table webhook_attempt (
  webhook_id text not null references webhook,
  number integer not null,
  event text not null,
  type text not null,
  attempt integer not null,
  at integer not null,
  milliseconds integer not null,
  status integer,
  error text,
  answer blob not null,
  primary key (webhook_id, number)
) strict, without rowid;

-- ==== Accounts ====

-- Sessions in browsers, each of an owner or of an operator. wallet_address_id is the wallet that an owner looks at;
-- verified_at is when a second factor was last given; address and browser are where it was opened.
-- rows: at most 32 (MAX_SESSIONS) for each owner and operator
-- kept: who is signed in, with the name of the browser and the address (of IPv6 the first half): when it ends, by
--   SESSIONS
-- times: created_at lasts 12 hours (OF_OWNERS.longest, OF_OPERATORS.longest); expires_at lasts 15 minutes
--   (OF_OWNERS.lifetime) of owners and 12 hours (OF_OPERATORS.lifetime) of operators; verified_at lasts 5 minutes
--   (second_factors.FRESH)
-- restore: ended by restore: all sessions
create table session (
  id_hash blob primary key,
  owner_id integer references owner,
  wallet_address_id integer references wallet_address,
  operator_id integer references operator,
  created_at integer not null,
  expires_at integer not null,
  verified_at integer,
  address text,
  browser text,
  check ((owner_id is null) <> (operator_id is null)),
  check ((owner_id is null) = (wallet_address_id is null))
) strict, without rowid;
create index session_expiry on session (expires_at);
create index session_of_owner on session (owner_id) where owner_id is not null;
create index session_of_operator on session (operator_id) where operator_id is not null;

-- Browsers that owners and operators have signed in with. Wrong passwords from other browsers do not lock anybody out of
-- these, and until trusted_until they are not asked for the second factor. A browser has a secret for each owner and
-- operator.
-- rows: at most 32 (MAX_KNOWN_BROWSERS) for each owner and operator
-- kept: known browsers: 365 days (KNOWN_BROWSER_DAYS) after the last sign-in, by BROWSERS
-- times: expires_at lasts 365 days (KNOWN_BROWSER_DAYS); trusted_until lasts 30 days (TRUSTED_LIFETIME)
-- restore: ended by restore: the trust in browsers, which stay known
create table known_browser (
  id_hash blob primary key,
  owner_id integer references owner,
  operator_id integer references operator,
  expires_at integer not null,
  trusted_until integer,
  check ((owner_id is null) <> (operator_id is null))
) strict, without rowid;
create index known_browser_expiry on known_browser (expires_at);
create index known_browser_of_owner on known_browser (owner_id, expires_at) where owner_id is not null;
create index known_browser_of_operator on known_browser (operator_id, expires_at) where operator_id is not null;

-- One-time links with which an owner or an operator sets a password; link_hash is the SHA-256 of the link's secret. Each
-- has at most one.
-- rows: one for each owner and operator
-- kept: until it is used or replaced, by end_access
-- times: expires_at lasts 1 hour (OF_OWNERS.link_lifetime) of owners and 15 minutes (OF_OPERATORS.link_lifetime) of
--   operators
-- restore: ended by restore: links that set a password
create table password_link (
  link_hash blob primary key,
  owner_id integer unique references owner,
  operator_id integer unique references operator,
  expires_at integer not null,
  check ((owner_id is null) <> (operator_id is null))
) strict, without rowid;

-- Codes by an app (TOTP, RFC 6238), from confirmed_at on. secret is encrypted; last_step is the step of the last code, which
-- is good once; wrong counts wrong codes since the last right one.
-- rows: one for each owner and operator
-- kept: until codes are turned off, by remove_step
-- times: created_at lasts 10 minutes (SET_UP); confirmed_at shown
-- restore: listed and carried over as codes
create table totp (
  id integer primary key,
  owner_id integer unique references owner,
  operator_id integer unique references operator,
  secret blob not null,
  created_at integer not null,
  confirmed_at integer,
  last_step integer not null default 0,
  wrong integer not null default 0 check (wrong >= 0),
  check ((owner_id is null) <> (operator_id is null))
) strict;

-- Recovery codes, ten of each account; hash is the SHA-256 of one that signs in once, in place of a second factor.
-- rows: at most 10 (RECOVERY_CODES) for each owner and operator
-- kept: until new ones are made, by replace_recovery_codes
-- times: created_at, used_at shown
-- restore: listed and carried over as recoveryCodes
create table recovery_code (
  hash blob primary key,
  owner_id integer references owner,
  operator_id integer references operator,
  created_at integer not null,
  used_at integer,
  check ((owner_id is null) <> (operator_id is null))
) strict, without rowid;
create index recovery_code_of_owner on recovery_code (owner_id) where owner_id is not null;
create index recovery_code_of_operator on recovery_code (operator_id) where operator_id is not null;

-- Passkeys (WebAuthn credentials). public_key is a COSE key; suspect_at is when its counter did not rise, after which it
-- signs nobody in. user_handle is random, one for each account.
-- rows: at most 20 (MAX_PASSKEYS) for each owner and operator
-- kept: until it is removed, by remove_step
-- times: created_at, last_used_at, suspect_at shown
-- restore: listed and carried over as passkey
-- restore: listed and carried over as newPasskey
create table passkey (
  id text primary key,
  owner_id integer references owner,
  operator_id integer references operator,
  user_handle blob not null,
  credential_id blob not null unique,
  public_key blob not null,
  sign_count integer not null,
  is_backed_up integer not null check (is_backed_up in (0, 1)),
  transports text not null,
  name text not null,
  created_at integer not null,
  last_used_at integer,
  suspect_at integer,
  check ((owner_id is null) <> (operator_id is null))
) strict;
create index passkey_of_owner on passkey (owner_id, id) where owner_id is not null;
create index passkey_of_operator on passkey (operator_id, id) where operator_id is not null;

-- Challenges for passkeys that were used, until they would have expired: each is good once.
-- rows: owners and operators by their passkey, at most 10,000 (rate_limit_per_address) a second of an address
-- kept: challenges that a passkey has signed: when they have expired, after 10 minutes (passkeys.LIFETIME), by
--   CHALLENGES
-- times: expires_at purge
-- restore: nothing, because sessions that a challenge has opened since are lost
create table used_challenge (
  hash blob primary key,
  expires_at integer not null
) strict, without rowid;
create index used_challenge_expiry on used_challenge (expires_at);

-- Sign-ins with a right password that wait for the second factor. They are no sessions.
-- rows: owners and operators by their password, of which at most 2 (PASSWORDS_AT_ONCE) are checked at once
-- kept: sign-ins that wait for a second step: after 10 minutes (HALF_LIFETIME), by HALF_SIGN_INS
-- times: created_at shown; expires_at lasts 10 minutes (HALF_LIFETIME)
-- restore: ended by restore: sign-ins that wait for a second step
create table half_sign_in (
  id_hash blob primary key,
  owner_id integer references owner,
  wallet_address_id integer references wallet_address,
  operator_id integer references operator,
  created_at integer not null,
  expires_at integer not null,
  check ((owner_id is null) <> (operator_id is null)),
  check ((owner_id is null) = (wallet_address_id is null))
) strict, without rowid;
create index half_sign_in_expiry on half_sign_in (expires_at);
create index half_sign_in_of_owner on half_sign_in (owner_id) where owner_id is not null;
create index half_sign_in_of_operator on half_sign_in (operator_id) where operator_id is not null;

-- Second factors that an operator removes for somebody who has lost them, once due_at has passed; why is what owners read.
-- rows: operators, one for each owner and operator
-- kept: until it is done or refused, by cancel_removal
-- times: asked_at shown; due_at due, at most 1 day (REMOVAL_DELAY) ahead
-- restore: ended by restore: the removal of a second step, which its owner may have refused since
create table factor_removal (
  id integer primary key,
  owner_id integer unique references owner,
  operator_id integer unique references operator,
  asked_at integer not null,
  due_at integer not null,
  why text,
  check ((owner_id is null) <> (operator_id is null))
) strict;

-- Wallets that an owner, owner_id, asks to bring to theirs with the password of the wallet, and those that came at joined_at:
-- by which browser, and where notices went before. Until due_at the owner of the wallet can say no.
-- rows: one for each wallet_address
-- kept: how a wallet came to the owner of others, with where notices went before: 30 days (JOINS_KEPT), by JOINS
-- times: due_at lasts 1 day (JOIN_DELAY), and what may be done then 7 days (JOIN_LASTS); joined_at lasts 30 days (JOINS_KEPT); purge_at purge
-- restore: ended by restore: what owners of other wallets ask for
create table wallet_join (
  wallet_address_id integer primary key references wallet_address,
  owner_id integer not null references owner,
  due_at integer not null,
  joined_at integer,
  purge_at integer not null,
  browser text,
  address text,
  email text,
  language text,
  time_zone text
) strict;
create index wallet_join_of_owner on wallet_join (owner_id);
create index wallet_join_purge on wallet_join (purge_at);

-- The last sign-ins of each account, also those that failed; way says with what.
-- rows: at most 20 (MAX_KEPT_SIGN_INS) of each outcome for each owner and operator
-- kept: the last sign-ins of an account, also those that failed, with what, browser and address: when there are 20
--   (MAX_KEPT_SIGN_INS) later ones of the same outcome, and after 90 days, by SIGN_INS
-- times: at lasts 90 days (SIGN_INS.after)
-- restore: nothing, because it says what happened
create table sign_in (
  id integer primary key,
  owner_id integer references owner,
  operator_id integer references operator,
  at integer not null,
  way text not null,
  address text,
  browser text,
  check ((owner_id is null) <> (operator_id is null))
) strict;
create index sign_in_age on sign_in (at);
create index sign_in_of_owner on sign_in (owner_id, id) where owner_id is not null;
create index sign_in_of_operator on sign_in (operator_id, id) where operator_id is not null;

-- Where the notices of owners go. email is confirmed; pending becomes it once the code is typed in whose SHA-256 is
-- code_hash; wrong counts wrong codes. language and time_zone are those of the page on which they were last chosen.
-- after_event is the last event before email was confirmed, of which nobody is told there.
-- rows: one for each owner
-- kept: with owner, by owners.take_over
-- times: confirmed_at shown; code_until lasts 1 hour (CODE_LIFETIME)
-- restore: listed and carried over as mailAddress
create table mail_address (
  owner_id integer primary key references owner,
  email text,
  confirmed_at integer,
  language text not null,
  time_zone text not null,
  pending text,
  code_hash blob,
  code_until integer,
  wrong integer not null default 0,
  after_event integer not null default 0,
  check ((email is null) = (confirmed_at is null)),
  check ((pending is null) = (code_hash is null))
) strict;

-- How often an owner wants notices of a kind: at once is the rate of kinds without a row.
-- rows: at most one of each kind of notice for each owner
-- kept: until another is chosen, by set_rates
-- times: none
-- restore: nothing, because notices that were turned off since are sent again, and each has a link that turns them off
create table mail_choice (
  owner_id integer not null references owner,
  kind text not null,
  rate text not null check (rate in ('off', 'hour', 'once')),
  primary key (owner_id, kind)
) strict, without rowid;

-- Mails to owners. key names what each is about, so that nothing is told twice; data is a JSON object. send_at is when
-- the next attempt is due; null once the mail is sent or given up, whose reason is last_error.
-- rows: owners, at most 5 (MAX_MAILS_ASKED_FOR) an hour that they ask for; anybody, at most 4 (MAX_NOTICES_OF_KIND) an
--   hour of each other kind for each owner
-- kept: mails to owners, with their addresses: 30 days after they were made; a code that was sent is removed from its
--   mail at once, by mail.KEPT
-- times: created_at lasts 3 days (TOO_OLD) for an attempt, and 1 hour (clock.HOUR) for a count; send_at due, at most 1
--   day (mail.PAUSES) ahead; sent_at lasts 1 hour (clock.HOUR)
-- restore: nothing, because what was sent since is sent again
create table mail (
  id text primary key,
  owner_id integer not null references owner,
  kind text not null,
  key text not null unique,
  address text not null,
  data text not null,
  language text not null,
  created_at integer not null,
  send_at integer,
  attempts integer not null default 0,
  sent_at integer,
  last_error text
) strict;
create index mail_due on mail (send_at, id) where send_at is not null;
create index mail_due_of_owner on mail (owner_id, send_at) where send_at is not null;
create index mail_of_owner on mail (owner_id, id);
create index mail_age on mail (created_at);

-- Up to which time and transfer the deleted mails of a kind told of a wallet: of money, or of what was not paid.
-- rows: one for each wallet_address and kind, of which there are two
-- kept: for good
-- times: until_at shown
-- restore: nothing, because it goes with the mails and transfers of this file
create table mail_told (
  wallet_address_id integer not null references wallet_address,
  kind text not null,
  until_at integer not null,
  upto integer not null,
  primary key (wallet_address_id, kind)
) strict, without rowid;

-- The last event that owners were told of, while the server sends mail.
-- rows: one row
-- kept: while mail is sent, by mail.turn
-- times: none
-- restore: nothing, because it counts the events of this file
create table mail_cursor (
  id integer primary key check (id = 1),
  sequence integer not null
) strict;

-- ==== People ====

-- Payments of local incoming payments from wallets on other servers, started in a payer's browser. id_hash is the
-- SHA-256 of the secret in the URL that the payer returns to, browser_hash that of the secret in the browser's cookie.
-- amount is the amount to arrive. pending is encrypted: the consent request in progress, and the token. In state
-- 'returned' the browser has come back and nothing was created; in 'made' the payer's server was sent the creation of
-- the payment, and received_before is the amount received by then. payment is the URL of that payment; null in state 'made' while
-- it is not known whether it was created. changed_at is the time of the state. At due_at the next step is tried, after so
-- many attempts since the last progress; silent is the server that did not answer the last one.
-- rows: anybody, at most 1 (CHECKOUT_RATE) a second of an address
-- kept: payments that were begun at a payment page with a remote wallet: 1 day (UNPAID) after; what was paid stays, by
--   checkouts.RULE
-- times: changed_at shown; purge_at purge; due_at due, at most 5 minutes (checkouts.LONGEST_PAUSE) ahead
-- restore: nothing, because the payer's server knows what it has paid
create table checkout (
  id_hash blob primary key,
  incoming_payment_id text not null references incoming_payment,
  browser_hash blob not null,
  payer text not null,
  amount integer not null check (amount > 0),
  state text not null check (state in ('asked', 'returned', 'made', 'paid', 'failed')),
  changed_at integer not null,
  purge_at integer not null,
  failure text,
  pending blob,
  received_before integer,
  due_at integer,
  attempts integer not null default 0,
  silent text,
  payment text,
  check ((state = 'failed') = (failure is not null)),
  check ((state in ('asked', 'returned', 'made')) = (pending is not null))
) strict, without rowid;
create index checkout_purge on checkout (purge_at);
create index checkout_paid on checkout (incoming_payment_id, payer) where state = 'paid';
create index checkout_due on checkout (due_at) where due_at is not null;
create index checkout_due_of_server on checkout (substr(payer, 1, 7 + instr(substr(payer || '/', 9), '/')), due_at)
  where due_at is not null;
create index checkout_of_payment on checkout (incoming_payment_id, changed_at);
create index checkout_of_browser on checkout (incoming_payment_id, browser_hash);

-- What the server of a bill elsewhere publishes of it, as the consent page of the grant to pay it has shown it: it never
-- changes. remaining is what the bill takes, null without a limit.
-- rows: one for each grant
-- kept: what the server of a bill elsewhere published of it, for the consent page: with the grant to pay the bill, with
--   grant
-- times: none
-- restore: nothing, because it says what was shown
create table remote_bill (
  grant_id text primary key references "grant" on delete cascade,
  name text,
  address text not null,
  purpose text not null,
  remaining text,
  asset_code text not null,
  asset_scale integer not null
) strict, without rowid;

-- Refunds of money of an incoming payment. amount is in the asset of the receiver's wallet. A local payer's wallet gets
-- returned, in its own asset. Money from another server goes to a wallet address named by the operator: the return
-- payment sends amount there. One reference may take several rows. The wallets are those of the two payments; null for
-- a return payment, which has its own wallet. why is a sentence for both owners.
-- rows: operators
-- kept: for good
-- times: created_at shown
-- restore: nothing, because a refund does not end
create table refund (
  id text primary key,
  incoming_payment_id text not null references incoming_payment,
  outgoing_payment_id text references outgoing_payment,
  return_payment_id text unique references outgoing_payment,
  wallet_address text,
  amount integer not null check (amount > 0),
  returned integer check (returned > 0),
  reference text not null,
  created_at integer not null,
  from_wallet_id integer references wallet_address,
  to_wallet_id integer references wallet_address,
  why text,
  unique (incoming_payment_id, reference, outgoing_payment_id),
  check ((outgoing_payment_id is null) = (returned is null)),
  check ((outgoing_payment_id is null) = (return_payment_id is not null)),
  check ((return_payment_id is null) = (wallet_address is null))
) strict, without rowid;
create index refund_of_outgoing_payment on refund (outgoing_payment_id);
create index refund_from_wallet on refund (from_wallet_id, id) where from_wallet_id is not null;
create index refund_to_wallet on refund (to_wallet_id, id) where to_wallet_id is not null;
create unique index refund_to_wallet_address on refund (incoming_payment_id, reference) where outgoing_payment_id is null;

-- Deposits and withdrawals by operators, one transfer each. reference is the operator's, unique per account. undoes is
-- the movement that this one is the opposite of.
-- rows: operators
-- kept: for good
-- times: created_at lasts 1 hour (REMEMBERED)
-- restore: nothing, because a movement does not end
create table movement (
  id text primary key,
  account_id integer not null references account,
  transfer_id integer not null unique references transfer,
  reference text,
  created_at integer not null,
  undoes text references movement,
  unique (account_id, reference)
) strict, without rowid;
create index movement_of_account on movement (account_id, id);
create index movement_of_reference on movement (reference) where reference is not null;
create unique index movement_undoing on movement (undoes) where undoes is not null;

-- Standing orders of wallets' owners. value is in the minor unit of the wallet's asset if `send` is fixed, else of the
-- payee's, which is receive_code with receive_scale; most is the most that one payment takes from the wallet, fee
-- included. interval is an ISO 8601 repeating interval on the clocks of zone, written as if they were UTC: window k is
-- due when they show its start, from first_window on. Windows from next_window on have no run yet, unless a clock that
-- was ahead has paid them, and next_at is when the first of them is due, null if there is none or the order is not
-- active. Windows before not_before are not paid: what was paid of them is lost with the state that a restore replaced.
-- problem is why payres paused it; paused_until is the day before which its owner left out dates, at its beginning there.
-- rows: owners, at most 50 (MAX_ORDERS_OF_WALLET) that go on for each wallet_address, and 240 (MAX_FORMS_OF_OWNER) an
--   hour that they set up and end
-- kept: for good
-- times: next_at due on a date; not_before date; paused_until, created_at, ended_at shown
-- restore: listed and carried over as standingOrder
-- restore: ended by restore: dates of standing orders before the restore, which may have been paid since
create table standing_order (
  id text primary key,
  wallet_address_id integer not null references wallet_address,
  payee text not null,
  payee_name text,
  value integer not null check (value > 0),
  fixed text not null check (fixed in ('send', 'receive')),
  most integer not null check (most > 0),
  receive_code text not null,
  receive_scale integer not null check (receive_scale between 0 and 255),
  note text not null,
  interval text not null,
  zone text not null,
  state text not null check (state = 'active' or state = 'paused' or state = 'ended' or state = 'cancelled'),
  problem text,
  next_window integer not null default 0 check (next_window >= 0),
  next_at integer,
  not_before integer not null default 0,
  created_at integer not null,
  ended_at integer,
  first_window integer not null default 0 check (first_window >= 0),
  paused_until integer,
  check (next_at is null or state = 'active'),
  check ((ended_at is null) = (state = 'active' or state = 'paused'))
) strict, without rowid;
create index standing_order_of_wallet on standing_order (wallet_address_id, id);
create index standing_order_coming on standing_order (wallet_address_id, next_at) where next_at is not null;
create index standing_order_in_trouble on standing_order (wallet_address_id, id) where problem is not null;
create index standing_order_due on standing_order (next_at) where next_at is not null;

-- The windows of standing orders that were due at window_at, each at most once. A paid one has its payment, which may
-- still fail on its way; a waiting one is tried at retry_at.
-- rows: one for each standing_order and window
-- kept: for good; unpaid ones that a clock ahead began or gave up too early: until it is right, by forget_runs
-- times: window_at date; retry_at due, at most 1 day (standing_orders.PAUSES) ahead
-- restore: ended by restore: payments of standing orders that waited, or fall due before the restore
create table standing_order_run (
  order_id text not null references standing_order,
  window integer not null check (window >= 0),
  window_at integer not null,
  state text not null check (state = 'waiting' or state = 'paid' or state = 'missed' or state = 'failed'),
  outgoing_payment_id text unique references outgoing_payment,
  problem text,
  attempts integer not null default 0,
  retry_at integer,
  primary key (order_id, window),
  check ((state = 'paid') = (outgoing_payment_id is not null)),
  check ((state = 'waiting') = (retry_at is not null))
) strict, without rowid;
create index standing_order_run_due on standing_order_run (retry_at) where retry_at is not null;
create index standing_order_run_due_of_order on standing_order_run (order_id, retry_at) where retry_at is not null;
create index standing_order_run_unpaid on standing_order_run (window_at) where state <> 'paid';

-- ==== Operators ====

-- Operators of the admin pages. An operator sets the password with a one-time link; a new link ends the old password
-- and sessions. unlocked_at is when the last link was made: earlier wrong passwords do not count. refund_limit is the most
-- that one with the role support sends back of a payment, in the minor unit; null if nothing.
-- rows: operators
-- kept: until the operator is removed, by delete_operator
-- times: unlocked_at lasts 15 minutes (guesses.WINDOW)
-- restore: listed and carried over as operator
create table operator (
  id integer primary key,
  name text not null unique,
  role text not null check (role in ('full', 'support', 'reads')),
  password_hash text,
  unlocked_at integer not null,
  refund_limit integer check (refund_limit > 0),
  refund_asset_id integer references asset,
  check ((refund_limit is null) = (refund_asset_id is null))
) strict;

-- What was wrong when others were asked, such as the servers of peers, and since when.
-- rows: the server, one for each peer and each other that it asks
-- kept: until it is in order, by note_wrong
-- times: began_at shown
-- restore: nothing, because others are asked again
create table finding (
  subject text primary key,
  began_at integer not null
) strict, without rowid;

-- Pairs of currencies without a valid rate that somebody wanted to pay between: when last, how often, and from when on.
-- rows: clients, at most 32 (MAX_MISSING_RATES)
-- kept: currencies that somebody wanted to exchange without a rate: 7 days (MISSING_RATES_KEPT) after the last time, by
--   note_missing_rates
-- times: asked_at lasts 7 days (MISSING_RATES_KEPT); began_at shown
-- restore: nothing, because it says what was asked for
create table missing_rate (
  base_code text not null,
  counter_code text not null,
  asked_at integer not null,
  began_at integer not null default 0,
  times integer not null default 1,
  primary key (base_code, counter_code)
) strict, without rowid;

-- Submitted forms of the admin pages, so that none takes effect twice.
-- rows: operators
-- kept: the ids of forms that operators have sent: after 1 day, by FORMS
-- times: used_at purge
-- restore: nothing, because what a form has done since is lost
create table operator_form (
  id text primary key,
  used_at integer not null
) strict, without rowid;
create index operator_form_age on operator_form (used_at);

-- API keys of programs that use the operator's API. secret_hash is the SHA-256 of the secret part, scopes a JSON array.
-- last_used_at is updated at most once a minute. made_by is the key that created it, if a program did.
-- rows: operators
-- kept: for good
-- times: created_at, revoked_at, last_used_at shown; expires_at lasts as asked
-- restore: listed and carried over as apiKey
create table api_key (
  id text primary key,
  name text not null,
  secret_hash blob not null,
  scopes text not null,
  created_at integer not null,
  expires_at integer,
  revoked_at integer,
  last_used_at integer,
  made_by text references api_key
) strict, without rowid;
create index api_key_of_maker on api_key (made_by) where made_by is not null;
