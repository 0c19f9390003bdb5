alter table outgoing_payment add column overlapped integer not null default 0 check (overlapped in (0, 1));
update outgoing_payment as p set overlapped = 1 where state = 'sending' and exists (
  select 1 from outgoing_payment o
  where o.receiver = p.receiver and o.incoming_payment_id is null and o.ended_at is not null
);
create index checkout_of_browser on checkout (incoming_payment_id, browser_hash);
alter table mail_address add column after_event integer not null default 0;
