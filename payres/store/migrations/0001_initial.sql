-- The whole current schema of a payres database, readable from top to bottom.
--
-- Times are integer microseconds since the Unix epoch, UTC. Amounts that clients ask for are decimal text (the full
-- unsigned 64-bit range); what the ledger moves is integer, in the asset's minor unit. Identifiers of resources are
-- UUIDv7, so the order of ids is the order of creation. Tokens are stored as SHA-256 hashes only.
--
-- A change here is also a new numbered file in payres/store/migrations/; a test proves that both ways meet.

-- What the server itself must remember between starts: its STREAM secret and the like.
create table secret (
  name text primary key,
  value blob not null
) strict, without rowid;

-- Currencies and other assets that accounts are kept in, with the fee for sending from a wallet in that asset.
create table asset (
  id integer primary key,
  code text not null check (length(code) between 1 and 32),
  scale integer not null check (scale between 0 and 255),
  fee_fixed integer not null default 0 check (fee_fixed >= 0),
  fee_basis_points integer not null default 0 check (fee_basis_points between 0 and 9999),
  unique (code, scale)
) strict;

-- How many units of one currency one unit of another buys; rate is an exact decimal.
create table exchange_rate (
  base_code text not null,
  counter_code text not null,
  rate text not null,
  set_at integer not null,
  primary key (base_code, counter_code),
  check (base_code <> counter_code)
) strict, without rowid;

-- Ledger accounts. balance is credits minus debits; reserved is the part promised to payments under way; floor is the
-- lowest that balance minus reserved may fall, or null for the external account, the world outside.
create table account (
  id integer primary key,
  kind text not null check (kind in ('wallet', 'liquidity', 'fees', 'peer', 'external')),
  asset_id integer not null references asset,
  balance integer not null default 0,
  reserved integer not null default 0 check (reserved >= 0),
  floor integer default 0,
  check (floor is null or balance - reserved >= floor),
  check ((kind = 'external') = (floor is null))
) strict;
create unique index account_of_operator on account (asset_id, kind) where kind in ('liquidity', 'fees', 'external');
create index account_of_asset on account (asset_id);

-- Wallet addresses. path is what follows the base URL, lower-case; password_hash lets the owner sign in for consent.
create table wallet_address (
  id integer primary key,
  path text not null unique,
  public_name text,
  asset_id integer not null references asset,
  account_id integer not null unique references account,
  password_hash text,
  state text not null default 'active' check (state in ('active', 'inactive')),
  created_at integer not null
) strict;

-- Public Ed25519 keys of wallet addresses here; x is the base64url of the 32 bytes, as in a JWK. A kid may come back after revocation.
create table wallet_key (
  id integer primary key,
  wallet_address_id integer not null references wallet_address,
  kid text not null,
  x text not null,
  created_at integer not null,
  revoked_at integer
) strict;
create unique index wallet_key_in_force on wallet_key (wallet_address_id, kid) where revoked_at is null;
create index wallet_key_of_wallet on wallet_key (wallet_address_id);

-- Who asks: a client is its wallet address (normalised), or the RFC 7638 thumbprint of the key it came with.
create table client (
  id integer primary key,
  identity text not null unique,
  wallet_address text,
  jwk text,
  created_at integer not null,
  check ((wallet_address is null) <> (jwk is null))
) strict;

-- Keys of clients whose wallet address is on another server, as last fetched from their jwks.json.
create table client_key (
  client_id integer not null references client,
  kid text not null,
  x text not null,
  fetched_at integer not null,
  primary key (client_id, kid)
) strict, without rowid;

-- Signature nonces seen within the freshness window; each is good once for a client's key.
create table signature_nonce (
  client_id integer not null references client,
  kid text not null,
  nonce text not null,
  expires_at integer not null,
  primary key (client_id, kid, nonce)
) strict, without rowid;
create index signature_nonce_expiry on signature_nonce (expires_at);

-- Grants. access is the JSON array of access items exactly as granted. States move one way:
-- pending -> approved -> issued, pending -> denied, and any but denied -> revoked.
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
  ended_at integer
) strict, without rowid;
create index grant_by_state on "grant" (state, id);

-- The interaction of a grant that needs consent. reference is the interact_ref, present from approval until its one use.
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
  check ((finish_uri is null) = (client_nonce is null))
) strict, without rowid;

-- Access tokens; id is the last part of the manage URL.
create table access_token (
  id text primary key,
  grant_id text not null references "grant",
  value_hash blob not null unique,
  created_at integer not null,
  expires_at integer not null,
  revoked_at integer
) strict, without rowid;
create index access_token_of_grant on access_token (grant_id);

-- Signed-in browsers of wallet owners, for the consent pages.
create table session (
  id_hash blob primary key,
  wallet_address_id integer not null references wallet_address,
  created_at integer not null,
  expires_at integer not null
) strict, without rowid;
create index session_expiry on session (expires_at);
create index session_of_wallet on session (wallet_address_id);

-- Incoming payments. received is the total paid in; `payres ledger check` proves that the transfers agree.
create table incoming_payment (
  id text primary key,
  wallet_address_id integer not null references wallet_address,
  client_id integer not null references client,
  incoming_value text check (incoming_value not glob '*[^0-9]*' and length(incoming_value) between 1 and 20),
  received integer not null default 0 check (received >= 0),
  metadata text,
  created_at integer not null,
  expires_at integer not null,
  completed_at integer
) strict, without rowid;
create index incoming_payment_of_wallet on incoming_payment (wallet_address_id, id);
create index incoming_payment_of_client on incoming_payment (wallet_address_id, client_id, id);

-- Quotes. incoming_payment_id is set when the receiver is on this server.
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
  expires_at integer not null
) strict, without rowid;

-- Outgoing payments. sent is what has left the wallet, fee included; delivered is what the receiver got.
-- window_start is the start of the grant's interval that the payment counts in, 0 when the grant has no interval.
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
  state text not null check (state in ('sending', 'completed', 'failed')),
  failure text,
  metadata text,
  created_at integer not null,
  ended_at integer,
  check (state <> 'failed' or sent < debit),
  check ((state = 'failed') = (failure is not null)),
  check ((state = 'sending') = (ended_at is null))
) strict, without rowid;
create index outgoing_payment_of_wallet on outgoing_payment (wallet_address_id, id);
create index outgoing_payment_of_client on outgoing_payment (wallet_address_id, client_id, id);
create index outgoing_payment_sending on outgoing_payment (id) where state = 'sending';

-- What a grant has spent (or has reserved) in each window of its interval, in the sender's asset and each receiver's.
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

-- Phase one of a movement: money of an account promised to an outgoing payment. remaining is not yet posted or released.
create table reservation (
  id integer primary key,
  account_id integer not null references account,
  outgoing_payment_id text not null references outgoing_payment,
  amount integer not null check (amount > 0),
  remaining integer not null check (remaining between 0 and amount),
  created_at integer not null
) strict;
create index reservation_of_payment on reservation (outgoing_payment_id);
create index reservation_open on reservation (account_id) where remaining > 0;

-- Posted movements of the double-entry ledger, each tied to what caused it; rows are never changed.
create table transfer (
  id integer primary key,
  debit_account_id integer not null references account,
  credit_account_id integer not null references account,
  amount integer not null check (amount > 0),
  kind text not null check (kind in ('deposit', 'withdrawal', 'payment', 'fee', 'exchange')),
  reservation_id integer references reservation,
  outgoing_payment_id text references outgoing_payment,
  incoming_payment_id text references incoming_payment,
  created_at integer not null,
  check (debit_account_id <> credit_account_id),
  check (reservation_id is null or outgoing_payment_id is not null)
) strict;
create index transfer_to_incoming_payment on transfer (incoming_payment_id) where incoming_payment_id is not null;
create index transfer_of_outgoing_payment on transfer (outgoing_payment_id) where outgoing_payment_id is not null;
