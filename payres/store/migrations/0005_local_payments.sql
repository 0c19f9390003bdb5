-- A payment between wallets here is settled by the unit that creates it. What an earlier version has not settled yet is
-- settled when the server starts. Of a request under an Idempotency-Key only a digest is kept.

alter table idempotency_key drop column members;
alter table idempotency_key drop column status;
alter table idempotency_key rename column answer to response;
