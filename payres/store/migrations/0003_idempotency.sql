-- Idempotency keys: what was created under a key of a client, and the answer that a repeated request gets again.

create table idempotency_key (
  id integer primary key,
  client_id integer not null references client,
  key text not null,
  path text not null,
  body_hash blob not null,
  members text not null,
  status integer not null,
  answer blob not null,
  created_at integer not null,
  unique (client_id, key)
) strict;
create index idempotency_key_age on idempotency_key (created_at);
