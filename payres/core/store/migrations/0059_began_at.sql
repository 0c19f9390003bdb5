create table finding (
  subject text primary key,
  began_at integer not null
) strict, without rowid;
alter table missing_rate add column began_at integer not null default 0;
alter table missing_rate add column times integer not null default 1;
update missing_rate set began_at = asked_at;
