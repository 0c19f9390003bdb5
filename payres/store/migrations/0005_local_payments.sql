-- A payment between wallets here is settled by the unit that creates it. What an earlier version has not settled yet is
-- settled when the server starts. Of a request under an Idempotency-Key only a digest is kept.

alter table idempotency_key drop column members;
alter table idempotency_key drop column status;
alter table idempotency_key rename column answer to response;

-- The field's words: money is held until it is posted or the hold is void; rows are purged.
alter table account rename column reserved to held;
alter table reservation rename to hold;
alter table transfer rename column reservation_id to hold_id;
drop index reservation_of_payment;
drop index reservation_of_packet;
drop index reservation_open;
create index hold_of_payment on hold (outgoing_payment_id);
create index hold_of_packet on hold (packet_id) where packet_id is not null;
create index hold_open on hold (account_id) where remaining > 0;

alter table client rename column forget_at to purge_at;
alter table "grant" rename column forget_at to purge_at;
alter table quote rename column forget_at to purge_at;
drop index client_to_forget;
drop index grant_to_forget;
drop index quote_to_forget;
create index client_to_purge on client (purge_at) where purge_at is not null;
create index grant_to_purge on "grant" (purge_at) where purge_at is not null;
create index quote_to_purge on quote (purge_at) where purge_at is not null;
