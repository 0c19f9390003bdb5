-- Refunds of money from another server: an outgoing payment sends them to a wallet address that the operator named.

create table refund_new (
  id text primary key,
  incoming_payment_id text not null references incoming_payment,
  outgoing_payment_id text references outgoing_payment,
  return_payment_id text unique references outgoing_payment,
  wallet_address text,
  amount integer not null check (amount > 0),
  returned integer check (returned > 0),
  reference text not null,
  created_at integer not null,
  unique (incoming_payment_id, reference, outgoing_payment_id),
  check ((outgoing_payment_id is null) = (returned is null)),
  check ((outgoing_payment_id is null) = (return_payment_id is not null)),
  check ((return_payment_id is null) = (wallet_address is null))
) strict, without rowid;
insert into refund_new (id, incoming_payment_id, outgoing_payment_id, amount, returned, reference, created_at)
select id, incoming_payment_id, outgoing_payment_id, amount, returned, reference, created_at from refund;
drop table refund;
alter table refund_new rename to refund;
create index refund_of_outgoing_payment on refund (outgoing_payment_id);
create unique index refund_to_wallet_address on refund (incoming_payment_id, reference) where outgoing_payment_id is null;
