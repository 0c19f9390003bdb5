-- Operators' API: its keys, the audit log, what it created under an Idempotency-Key; movements with the operator's own
-- references, and refunds.

create table api_key (
  id text primary key,
  name text not null,
  secret_hash blob not null,
  scopes text not null,
  created_at integer not null,
  expires_at integer,
  revoked_at integer,
  last_used_at integer
) strict, without rowid;

create table audit (
  id text primary key,
  created_at integer not null,
  actor text not null,
  action text not null,
  object text not null,
  details text not null
) strict, without rowid;

create table idempotency_key_new (
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
insert into idempotency_key_new (id, client_id, key, path, body_hash, response, created_at)
select id, client_id, key, path, body_hash, response, created_at from idempotency_key;
drop table idempotency_key;
alter table idempotency_key_new rename to idempotency_key;
create unique index idempotency_key_of_api_key on idempotency_key (api_key_id, key) where api_key_id is not null;
create index idempotency_key_age on idempotency_key (created_at);

create table movement (
  id text primary key,
  account_id integer not null references account,
  transfer_id integer not null unique references transfer,
  reference text,
  created_at integer not null,
  unique (account_id, reference)
) strict, without rowid;
create index movement_of_account on movement (account_id, id);
-- Those so far get ids of their own times, in their own order.
insert into movement (id, account_id, transfer_id, created_at)
select
  printf('%08x-%04x-7000-8000-%012x', created_at / 1000 >> 16, created_at / 1000 & 65535, id),
  iif(kind = 'deposit', credit_account_id, debit_account_id), id, created_at
from transfer where kind in ('deposit', 'withdrawal');

create table refund (
  id text primary key,
  incoming_payment_id text not null references incoming_payment,
  outgoing_payment_id text not null references outgoing_payment,
  amount integer not null check (amount > 0),
  returned integer not null check (returned > 0),
  reference text not null,
  created_at integer not null,
  unique (incoming_payment_id, reference, outgoing_payment_id)
) strict, without rowid;
create index refund_of_outgoing_payment on refund (outgoing_payment_id);
alter table transfer add column refund_id text references refund;
create index transfer_of_refund on transfer (refund_id) where refund_id is not null;
