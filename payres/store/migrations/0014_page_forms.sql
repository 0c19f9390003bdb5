-- A form of the admin pages is carried out once.

create table operator_form (
  id text primary key,
  used_at integer not null
) strict, without rowid;
create index operator_form_age on operator_form (used_at);
