create table rejected_request (
  peer_id integer not null references peer,
  request_id text not null,
  condition blob not null,
  reply blob not null,
  purge_at integer not null,
  primary key (peer_id, request_id)
) strict, without rowid;
create index rejected_request_purge on rejected_request (purge_at);
