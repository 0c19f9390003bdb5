-- Events: what happens is written into an outbox and sent to webhooks. What had happened before has no events.

alter table account add column warn_below integer;
alter table account add column warned integer not null default 0 check (warned in (0, 1));
update account set warn_below = balance / 10 where kind = 'liquidity' and balance > 0;
update account set warn_below = -floor / 10 where kind = 'peer' and floor < 0;

alter table incoming_payment add column partial_event_at integer;
alter table incoming_payment add column expiry_event_at integer;
update incoming_payment set expiry_event_at = expires_at
  where completed_at is null and expires_at <= cast(strftime('%s', 'now') as integer) * 1000000;
create index incoming_payment_to_expire on incoming_payment (expires_at)
  where completed_at is null and expiry_event_at is null;

create table event (
  sequence integer primary key autoincrement,
  type text not null,
  subject text,
  data blob not null,
  created_at integer not null
) strict;

create table webhook (
  id text primary key,
  url text not null,
  events text not null,
  is_private integer not null check (is_private in (0, 1)),
  state text not null default 'active' check (state in ('active', 'disabled')),
  secret blob not null,
  previous_secret blob,
  previous_until integer,
  cursor integer not null,
  created_at integer not null,
  last_attempt_at integer,
  last_status integer,
  last_error text
) strict, without rowid;

create table delivery (
  sequence integer not null references event,
  webhook_id text not null references webhook,
  state text not null check (state in ('pending', 'delivered', 'failed')),
  attempts integer not null,
  next_at integer,
  last_attempt_at integer,
  last_status integer,
  last_error text,
  primary key (sequence, webhook_id),
  check ((state = 'pending') = (next_at is not null))
) strict, without rowid;
create index delivery_due on delivery (webhook_id, next_at) where next_at is not null;
create index delivery_of_webhook on delivery (webhook_id, state, sequence);
