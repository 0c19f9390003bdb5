create table missing_rate (
  base_code text not null,
  counter_code text not null,
  asked_at integer not null,
  primary key (base_code, counter_code)
) strict, without rowid;
