-- Packets that nobody answers for are accounted for by what their receiver has received; where that proves nothing, the
-- payer gets their money back, and the grant counts them until it is known that they did not arrive.

alter table outgoing_payment add column received_before integer;
alter table outgoing_payment add column unresolved_debit integer not null default 0 check (unresolved_debit >= 0);
alter table outgoing_payment add column unresolved_receive integer not null default 0 check (unresolved_receive >= 0);
create index outgoing_payment_to_receiver on outgoing_payment (receiver, ended_at) where incoming_payment_id is null;
