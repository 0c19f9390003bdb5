-- A browser that an owner has signed in with is known apart from its session, and for longer.

create table known_browser (
  id_hash blob primary key,
  wallet_address_id integer not null references wallet_address,
  expires_at integer not null
) strict, without rowid;
create index known_browser_expiry on known_browser (expires_at);
create index known_browser_of_wallet on known_browser (wallet_address_id, expires_at);

alter table wallet_address add column unlocked_at integer;

-- An approval lapses when the client does not continue the grant. Of the approvals so far, those that it never continued
-- are purged as what was denied is.
update "grant" set purge_at = 30 * 86400000000 + (select decided_at from interaction where grant_id = "grant".id)
where state = 'approved' and purge_at is null;
