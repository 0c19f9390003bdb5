-- Operators who use the admin pages.
create table operator (
  id integer primary key,
  name text not null unique,
  role text not null check (role in ('full', 'read-only')),
  password_hash text,
  link_hash blob unique,
  link_expires_at integer not null,
  unlocked_at integer not null
) strict;

create table operator_session (
  id_hash blob primary key,
  operator_id integer not null references operator,
  expires_at integer not null
) strict, without rowid;
create index operator_session_expiry on operator_session (expires_at);
create index operator_session_of_operator on operator_session (operator_id);
