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
  check ((email is null) = (confirmed_at is null)),
  check ((pending is null) = (code_hash is null))
) strict;
create table mail_choice (
  owner_id integer not null references owner,
  kind text not null,
  rate text not null check (rate in ('off', 'hour', 'once')),
  primary key (owner_id, kind)
) strict, without rowid;
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
create index mail_due on mail (send_at) where send_at is not null;
create index mail_of_owner on mail (owner_id, id);
create index mail_age on mail (created_at);
create table mail_cursor (
  id integer primary key check (id = 1),
  sequence integer not null
) strict;
