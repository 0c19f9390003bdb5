create table named_webhook (
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
  last_error text
) strict, without rowid;
insert into named_webhook (
  id, url, events, is_private, state, secret, previous_secret, previous_until, cursor, created_at, last_attempt_at,
  last_status, last_error
) select
  id, url, events, is_private, state, secret, previous_secret, previous_until, cursor, created_at, last_attempt_at,
  last_status, last_error
from webhook;
drop table webhook;
alter table named_webhook rename to webhook;
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
