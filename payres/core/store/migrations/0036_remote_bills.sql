create table remote_bill (
  grant_id text primary key references "grant" on delete cascade,
  name text,
  address text not null,
  purpose text not null,
  remaining text,
  asset_code text not null,
  asset_scale integer not null
) strict, without rowid;
