alter table "grant" add column kid text;
create table password_link (
  wallet_address_id integer primary key references wallet_address,
  link_hash blob not null unique,
  expires_at integer not null
) strict;
