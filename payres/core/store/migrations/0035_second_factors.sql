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
create table used_challenge (
  hash blob primary key,
  expires_at integer not null
) strict, without rowid;
create index used_challenge_expiry on used_challenge (expires_at);
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
create table factor_removal (
  id integer primary key,
  owner_id integer unique references owner,
  operator_id integer unique references operator,
  asked_at integer not null,
  due_at integer not null,
  check ((owner_id is null) <> (operator_id is null))
) strict;
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
alter table wallet_address add column asked_above integer check (asked_above >= 0);
