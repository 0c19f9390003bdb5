create table frozen_client (
  client text primary key,
  frozen_at integer not null
) strict, without rowid;
create trigger client_frozen after insert on frozen_client
  begin update authorization_revision set revision = random() where id = 1; end;
create trigger client_unfrozen after delete on frozen_client
  begin update authorization_revision set revision = random() where id = 1; end;
