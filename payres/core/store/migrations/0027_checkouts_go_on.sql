alter table checkout add column due_at integer;
alter table checkout add column attempts integer not null default 0;
alter table checkout add column silent text;
alter table checkout add column payment text;
create index checkout_due on checkout (due_at) where due_at is not null;
create index checkout_of_payment on checkout (incoming_payment_id, changed_at);
update checkout set state = 'made', due_at = changed_at where state in ('returned', 'made');
