-- Holders of access tokens are kept in memory: see schema.sql.

create table authorization_revision (
  id integer primary key check (id = 1),
  revision integer not null
) strict;
insert into authorization_revision values (1, random());
create trigger access_token_changed after update on access_token
  when exists (select 1 from "grant" where id = old.grant_id and purge_at is null)
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger access_token_deleted after delete on access_token
  when exists (select 1 from "grant" where id = old.grant_id and purge_at is null)
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger grant_changed after update of client_id, state, access, purge_at on "grant"
  when old.purge_at is null and old.state in ('issued', 'revoked')
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger grant_deleted after delete on "grant"
  when old.purge_at is null
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger client_changed after update of identity, wallet_address, jwk on client
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger client_deleted after delete on client
  when exists (select 1 from "grant" where client_id = old.id)
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger client_key_changed after update on client_key
  when old.good_until is null and exists (select 1 from "grant" where client_id = old.client_id)
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger client_key_deleted after delete on client_key
  when old.good_until is null and exists (select 1 from "grant" where client_id = old.client_id)
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger wallet_key_changed after update on wallet_key
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger wallet_key_deleted after delete on wallet_key
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger wallet_address_changed after update of path, state on wallet_address
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger wallet_address_deleted after delete on wallet_address
  begin update authorization_revision set revision = random() where id = 1; end;
