create table owner (
  id integer primary key,
  password_hash text,
  unlocked_at integer,
  created_at integer not null
) strict;
insert into owner (id, password_hash, unlocked_at, created_at)
  select id, password_hash, unlocked_at, created_at from wallet_address;
create table wallets_of_owners (
  id integer primary key,
  path text not null unique,
  public_name text,
  asset_id integer not null references asset,
  account_id integer not null unique references account,
  owner_id integer not null references owner,
  state text not null default 'active' check (state in ('active', 'inactive')),
  created_at integer not null
) strict;
insert into wallets_of_owners (id, path, public_name, asset_id, account_id, owner_id, state, created_at)
  select id, path, public_name, asset_id, account_id, id, state, created_at from wallet_address;
drop table wallet_address;
alter table wallets_of_owners rename to wallet_address;
create index wallet_of_owner on wallet_address (owner_id);
create trigger wallet_address_changed after update of path, state on wallet_address
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger wallet_address_deleted after delete on wallet_address
  begin update authorization_revision set revision = random() where id = 1; end;
create table sessions_of_owners (
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
insert into sessions_of_owners (id_hash, owner_id, wallet_address_id, operator_id, created_at, expires_at)
  select id_hash, wallet_address_id, wallet_address_id, operator_id, created_at, expires_at from session;
drop table session;
alter table sessions_of_owners rename to session;
create index session_expiry on session (expires_at);
create index session_of_owner on session (owner_id) where owner_id is not null;
create index session_of_operator on session (operator_id) where operator_id is not null;
create table browsers_of_owners (
  id_hash blob primary key,
  owner_id integer references owner,
  operator_id integer references operator,
  expires_at integer not null,
  check ((owner_id is null) <> (operator_id is null))
) strict, without rowid;
insert into browsers_of_owners (id_hash, owner_id, operator_id, expires_at)
  select id_hash, wallet_address_id, operator_id, expires_at from known_browser;
drop table known_browser;
alter table browsers_of_owners rename to known_browser;
create index known_browser_expiry on known_browser (expires_at);
create index known_browser_of_owner on known_browser (owner_id, expires_at) where owner_id is not null;
create index known_browser_of_operator on known_browser (operator_id, expires_at) where operator_id is not null;
create table links_of_owners (
  link_hash blob primary key,
  owner_id integer unique references owner,
  operator_id integer unique references operator,
  expires_at integer not null,
  check ((owner_id is null) <> (operator_id is null))
) strict, without rowid;
insert into links_of_owners (link_hash, owner_id, operator_id, expires_at)
  select link_hash, wallet_address_id, operator_id, expires_at from password_link;
drop table password_link;
alter table links_of_owners rename to password_link;
