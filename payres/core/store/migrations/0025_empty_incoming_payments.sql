alter table incoming_payment add column purge_at integer;
update incoming_payment set purge_at = expires_at + 604800000000
  where expiry_event_at is not null and completed_at is null and received = 0 and incoming_value is null;
create index incoming_payment_to_purge on incoming_payment (purge_at) where purge_at is not null;
create index quote_to_incoming_payment on quote (incoming_payment_id) where incoming_payment_id is not null;
create index outgoing_payment_to_incoming_payment on outgoing_payment (incoming_payment_id)
  where incoming_payment_id is not null;
