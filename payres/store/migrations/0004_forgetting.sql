-- Forgetting: grants that nobody approved or used, quotes that were not used, and clients that have nothing else, are
-- deleted after a while.

alter table client add column forget_at integer;
alter table "grant" add column forget_at integer;
alter table quote add column forget_at integer;

-- To delete a client or a grant takes a look at every table that may refer to it. An index that begins with the client
-- serves the lists of a client's own payments as well as one that begins with the wallet address.
drop index incoming_payment_of_client;
create index incoming_payment_of_client on incoming_payment (client_id, wallet_address_id, id);
drop index outgoing_payment_of_client;
create index outgoing_payment_of_client on outgoing_payment (client_id, wallet_address_id, id);
create index outgoing_payment_of_grant on outgoing_payment (grant_id) where grant_id is not null;
create index quote_of_client on quote (client_id);
create index grant_of_client on "grant" (client_id);

-- Of the grants so far it is not known which were used, so what was issued to a client that has created something stays.
update "grant" set forget_at = 86400000000 + (select max(expires_at) from access_token where grant_id = "grant".id)
where state in ('issued', 'revoked')
  and not exists (select 1 from interaction where grant_id = "grant".id)
  and not exists (select 1 from incoming_payment where client_id = "grant".client_id)
  and not exists (select 1 from quote where client_id = "grant".client_id)
  and not exists (select 1 from outgoing_payment where client_id = "grant".client_id);
update "grant" set forget_at = 86400000000 + (
  select expires_at from interaction where grant_id = "grant".id and decided_at is null
) where state in ('pending', 'revoked') and exists (select 1 from interaction where grant_id = "grant".id);
update "grant" set forget_at = ended_at + 30 * 86400000000 where state = 'denied';
update quote set forget_at = expires_at + 86400000000
where not exists (select 1 from outgoing_payment where quote_id = quote.id);
update client set forget_at = created_at + 86400000000;

create index client_to_forget on client (forget_at) where forget_at is not null;
create index grant_to_forget on "grant" (forget_at) where forget_at is not null;
create index quote_to_forget on quote (forget_at) where forget_at is not null;
