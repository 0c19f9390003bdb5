create table fault (
  kind text not null,
  label text not null,
  party any not null,
  faults integer not null check (faults > 0),
  failing_since integer not null,
  again_at integer,
  was_due_at integer not null,
  error text not null,
  primary key (kind, label)
) strict, without rowid;
create index fault_age on fault (failing_since);
create index fault_due on fault (kind, again_at) where again_at is not null;
create index checkout_due_of_server on checkout (substr(payer, 1, 7 + instr(substr(payer || '/', 9), '/')), due_at)
  where due_at is not null;
alter table webhook add column due_at integer;
update webhook set due_at = (select min(next_at) from delivery where webhook_id = webhook.id and next_at is not null)
  where wallet_address_id is not null;
create index webhook_due on webhook (due_at) where due_at is not null and state = 'active';
drop index mail_due;
create index mail_due on mail (send_at, id) where send_at is not null;
create index mail_due_of_owner on mail (owner_id, send_at) where send_at is not null;
create index standing_order_run_due_of_order on standing_order_run (order_id, retry_at) where retry_at is not null;
create index standing_order_run_unpaid on standing_order_run (window_at) where state <> 'paid';
