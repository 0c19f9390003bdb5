-- Standing orders of owners, and what became of each of their dates.
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
  check (next_at is null or state = 'active'),
  check ((ended_at is null) = (state = 'active' or state = 'paused'))
) strict, without rowid;
create index standing_order_of_wallet on standing_order (wallet_address_id, id);
create index standing_order_coming on standing_order (wallet_address_id, next_at) where next_at is not null;
create index standing_order_in_trouble on standing_order (wallet_address_id, id) where problem is not null;
create index standing_order_due on standing_order (next_at) where next_at is not null;
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
