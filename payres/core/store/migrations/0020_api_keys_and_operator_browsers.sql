alter table api_key add column made_by text references api_key;
create index api_key_of_maker on api_key (made_by) where made_by is not null;
create table operator_browser (
  id_hash blob primary key,
  operator_id integer not null references operator,
  expires_at integer not null
) strict, without rowid;
create index operator_browser_expiry on operator_browser (expires_at);
create index operator_browser_of_operator on operator_browser (operator_id, expires_at);
