alter table "grant" add column kid text;
drop index grant_of_client;
create index grant_of_client on "grant" (client_id, kid);
create index grant_of_wallet on "grant" (wallet_address_id, id) where wallet_address_id is not null and state <> 'pending';
alter table quote add column wish text;
create table password_link (
  wallet_address_id integer primary key references wallet_address,
  link_hash blob not null unique,
  expires_at integer not null
) strict;
drop index outgoing_payment_of_grant;
create index outgoing_payment_of_grant on outgoing_payment (grant_id, created_at, sent) where grant_id is not null;
