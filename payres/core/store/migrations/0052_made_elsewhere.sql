create table made_elsewhere (
  id text primary key,
  kind text not null check (kind = 'incoming-payment' or kind = 'grant'),
  url text not null,
  noted_at integer not null,
  token blob,
  due_at integer,
  attempts integer not null default 0,
  refusals integer not null default 0,
  problem text,
  check ((kind = 'grant') = (token is not null))
) strict, without rowid;
create index made_elsewhere_due on made_elsewhere (due_at, id) where due_at is not null;
create index made_elsewhere_being_paid on made_elsewhere (url) where due_at is null;
create index made_elsewhere_due_of_server
  on made_elsewhere (substr(url, 1, 7 + instr(substr(url || '/', 9), '/')), due_at) where due_at is not null;
insert into made_elsewhere (id, kind, url, noted_at)
  select p.id, 'incoming-payment', p.receiver, p.created_at
  from outgoing_payment p left join quote q on q.id = p.quote_id
  where p.state = 'sending' and p.incoming_payment_id is null
    and (json_extract(q.wish, '$.is_bill') = 0 or p.id in (select return_payment_id from refund));
