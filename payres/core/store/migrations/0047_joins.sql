create table wallet_join (
  wallet_address_id integer primary key references wallet_address,
  owner_id integer not null references owner,
  due_at integer not null,
  joined_at integer,
  purge_at integer not null,
  browser text,
  address text,
  email text,
  language text,
  time_zone text
) strict;
create index wallet_join_of_owner on wallet_join (owner_id);
create index wallet_join_purge on wallet_join (purge_at);
