create table made_elsewhere (
  id text primary key,
  kind text not null check (kind = 'incoming-payment' or kind = 'grant'),
  url text not null,
  noted_at integer not null,
  token blob,
  due_at integer,
  attempts integer not null default 0,
  problem text,
  check ((kind = 'grant') = (token is not null))
) strict, without rowid;
create index made_elsewhere_due on made_elsewhere (due_at, id) where due_at is not null;
create index made_elsewhere_due_of_server
  on made_elsewhere (substr(url, 1, 7 + instr(substr(url || '/', 9), '/')), due_at) where due_at is not null;
