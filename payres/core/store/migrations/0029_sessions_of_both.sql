create table sessions_of_both (
  id_hash blob primary key,
  wallet_address_id integer references wallet_address,
  operator_id integer references operator,
  created_at integer not null,
  expires_at integer not null,
  check ((wallet_address_id is null) <> (operator_id is null))
) strict, without rowid;
insert into sessions_of_both (id_hash, wallet_address_id, created_at, expires_at)
  select id_hash, wallet_address_id, created_at, expires_at from session;
insert into sessions_of_both (id_hash, operator_id, created_at, expires_at)
  select id_hash, operator_id, expires_at - 43200000000, expires_at from operator_session;
drop table session;
drop table operator_session;
alter table sessions_of_both rename to session;
create index session_expiry on session (expires_at);
create index session_of_wallet on session (wallet_address_id) where wallet_address_id is not null;
create index session_of_operator on session (operator_id) where operator_id is not null;
create table browsers_of_both (
  id_hash blob primary key,
  wallet_address_id integer references wallet_address,
  operator_id integer references operator,
  expires_at integer not null,
  check ((wallet_address_id is null) <> (operator_id is null))
) strict, without rowid;
insert into browsers_of_both (id_hash, wallet_address_id, expires_at)
  select id_hash, wallet_address_id, expires_at from known_browser;
insert into browsers_of_both (id_hash, operator_id, expires_at)
  select id_hash, operator_id, expires_at from operator_browser;
drop table known_browser;
drop table operator_browser;
alter table browsers_of_both rename to known_browser;
create index known_browser_expiry on known_browser (expires_at);
create index known_browser_of_wallet on known_browser (wallet_address_id, expires_at)
  where wallet_address_id is not null;
create index known_browser_of_operator on known_browser (operator_id, expires_at) where operator_id is not null;
create table links_of_both (
  link_hash blob primary key,
  wallet_address_id integer unique references wallet_address,
  operator_id integer unique references operator,
  expires_at integer not null,
  check ((wallet_address_id is null) <> (operator_id is null))
) strict, without rowid;
insert into links_of_both (link_hash, wallet_address_id, expires_at)
  select link_hash, wallet_address_id, expires_at from password_link;
insert into links_of_both (link_hash, operator_id, expires_at)
  select link_hash, id, link_expires_at from operator where link_hash is not null;
drop table password_link;
alter table links_of_both rename to password_link;
create table operator_without_link (
  id integer primary key,
  name text not null unique,
  role text not null check (role in ('full', 'read-only')),
  password_hash text,
  unlocked_at integer not null
) strict;
insert into operator_without_link (id, name, role, password_hash, unlocked_at)
  select id, name, role, password_hash, unlocked_at from operator;
drop table operator;
alter table operator_without_link rename to operator;
