create table tagged_wallets (
  id integer primary key,
  path text not null unique,
  public_name text,
  asset_id integer not null references asset,
  account_id integer not null unique references account,
  owner_id integer not null references owner,
  state text not null default 'active' check (state in ('active', 'inactive')),
  created_at integer not null,
  asked_above integer check (asked_above >= 0),
  tag text not null unique
) strict;
-- Addresses with ids of wallets were handed out. After a restore an id may be that of a wallet that was lost.
insert into tagged_wallets (id, path, public_name, asset_id, account_id, owner_id, state, created_at, asked_above, tag)
  select id, path, public_name, asset_id, account_id, owner_id, state, created_at, asked_above,
    iif(exists (select 1 from audit where action = 'database.restore'), lower(hex(randomblob(16))), cast(id as text))
  from wallet_address;
drop table wallet_address;
alter table tagged_wallets rename to wallet_address;
create index wallet_of_owner on wallet_address (owner_id);
create trigger wallet_address_changed after update of path, state on wallet_address
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger wallet_address_deleted after delete on wallet_address
  begin update authorization_revision set revision = random() where id = 1; end;
