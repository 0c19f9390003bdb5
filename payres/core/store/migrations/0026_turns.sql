alter table event add column wallet_address_id integer references wallet_address;
create table webhook_turn (
  webhook_id text not null references webhook,
  wallet_address_id integer not null,
  cursor integer not null,
  primary key (webhook_id, wallet_address_id)
) strict, without rowid;
create index webhook_turn_cursor on webhook_turn (webhook_id, cursor);
create index delivery_changed on delivery (webhook_id, coalesce(last_attempt_at, next_at)) where next_at is not null;
