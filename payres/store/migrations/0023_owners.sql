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
create table checkout (
  id_hash blob primary key,
  incoming_payment_id text not null references incoming_payment,
  browser_hash blob not null,
  payer text not null,
  amount integer not null check (amount > 0),
  state text not null check (state in ('asked', 'returned', 'made', 'paid', 'failed')),
  changed_at integer not null,
  purge_at integer not null,
  failure text,
  pending blob,
  received_before integer,
  check ((state = 'failed') = (failure is not null)),
  check ((state in ('asked', 'returned', 'made')) = (pending is not null))
) strict, without rowid;
create index checkout_purge on checkout (purge_at);
