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
create index checkout_paid on checkout (incoming_payment_id, payer) where state = 'paid';
alter table incoming_payment add column listed text;
create index incoming_payment_listed on incoming_payment (wallet_address_id, listed) where listed is not null;
update incoming_payment set listed = id
  where received = 0 and incoming_value is not null and completed_at is null and expiry_event_at is null;
update incoming_payment set listed = coalesce(
    (select printf('%08x-%04x', created_at / 1000 >> 16, created_at / 1000 & 65535) || substr(incoming_payment.id, 14)
      from transfer where incoming_payment_id = incoming_payment.id order by transfer.id limit 1),
    id)
  where received > 0;
alter table refund add column from_wallet_id integer references wallet_address;
alter table refund add column to_wallet_id integer references wallet_address;
create index refund_from_wallet on refund (from_wallet_id, id) where from_wallet_id is not null;
create index refund_to_wallet on refund (to_wallet_id, id) where to_wallet_id is not null;
update refund set
    from_wallet_id = (select wallet_address_id from incoming_payment where id = refund.incoming_payment_id),
    to_wallet_id = (select wallet_address_id from outgoing_payment where id = refund.outgoing_payment_id)
  where outgoing_payment_id is not null;
