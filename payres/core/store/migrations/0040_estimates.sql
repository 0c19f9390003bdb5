alter table outgoing_payment add column estimated integer not null default 0 check (estimated >= 0);
