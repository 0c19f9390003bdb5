create table mail_told (
  wallet_address_id integer not null references wallet_address,
  kind text not null,
  until_at integer not null,
  upto integer not null,
  primary key (wallet_address_id, kind)
) strict, without rowid;
