create table operator_with_limit (
  id integer primary key,
  name text not null unique,
  role text not null check (role in ('full', 'support', 'reads')),
  password_hash text,
  unlocked_at integer not null,
  refund_limit integer check (refund_limit > 0),
  refund_asset_id integer references asset,
  check ((refund_limit is null) = (refund_asset_id is null))
) strict;
insert into operator_with_limit (id, name, role, password_hash, unlocked_at)
  select id, name, iif(role = 'full', role, 'reads'), password_hash, unlocked_at from operator;
drop table operator;
alter table operator_with_limit rename to operator;
