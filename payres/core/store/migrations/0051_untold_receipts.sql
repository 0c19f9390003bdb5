alter table incoming_payment add column untold_at integer;
create index incoming_payment_untold on incoming_payment (untold_at) where untold_at is not null;
