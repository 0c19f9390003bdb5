alter table webhook add column wallet_address_id integer references wallet_address;
create index webhook_of_wallet on webhook (wallet_address_id);
create table wallet_event (
  id integer primary key check (id = 1),
  cursor integer not null
) strict;
