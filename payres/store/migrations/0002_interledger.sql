-- Interledger: peers, their routes, packets under way, and what payments to other servers need.

alter table quote add column path text;
alter table outgoing_payment add column path text;
alter table outgoing_payment add column attempts integer not null default 0;

-- Beside the primary key of this table the new column would come after the key; so it is made anew.
create table kept_exchange_rate as select base_code, counter_code, rate, set_at from exchange_rate;
drop table exchange_rate;
create table exchange_rate (
  base_code text not null,
  counter_code text not null,
  rate text not null,
  set_at integer not null,
  expires_at integer,
  primary key (base_code, counter_code),
  check (base_code <> counter_code)
) strict, without rowid;
insert into exchange_rate (base_code, counter_code, rate, set_at) select base_code, counter_code, rate, set_at from kept_exchange_rate;
drop table kept_exchange_rate;

create table peer (
  id integer primary key,
  name text not null,
  account_id integer not null unique references account,
  ilp_address text not null,
  url text not null,
  outgoing_token blob not null,
  incoming_token_hash blob not null,
  max_packet integer check (max_packet > 0),
  packets_received integer not null default 0,
  packets_sent integer not null default 0,
  last_error text,
  last_error_at integer,
  created_at integer not null,
  removed_at integer,
  repeats_answers integer not null default 0 check (repeats_answers in (0, 1))
) strict;
create unique index peer_in_force on peer (name) where removed_at is null;
create unique index peer_by_token on peer (incoming_token_hash) where removed_at is null;

create table peer_route (
  prefix text not null,
  peer_id integer not null references peer,
  primary key (prefix, peer_id)
) strict, without rowid;
create index peer_route_of_peer on peer_route (peer_id);

create table packet (
  id text primary key,
  to_peer_id integer not null references peer,
  outgoing_payment_id text references outgoing_payment,
  from_peer_id integer references peer,
  from_request_id text,
  source_amount integer not null check (source_amount > 0),
  amount integer not null check (amount > 0),
  prepare blob,
  expires_at integer not null,
  state text not null check (state in ('prepared', 'fulfilled', 'rejected', 'doubtful')),
  check ((outgoing_payment_id is null) <> (from_peer_id is null)),
  check ((state = 'prepared') = (prepare is not null))
) strict, without rowid;
create index packet_prepared on packet (id) where state = 'prepared';
create index packet_doubtful on packet (to_peer_id) where state = 'doubtful';
create index packet_of_payment on packet (outgoing_payment_id, state) where outgoing_payment_id is not null;
create index packet_of_request on packet (from_peer_id, from_request_id) where from_request_id is not null;

create table answered_request (
  peer_id integer not null references peer,
  request_id text not null,
  condition blob not null,
  reply blob not null,
  answered_at integer not null,
  primary key (peer_id, request_id)
) strict, without rowid;
create index answered_request_age on answered_request (answered_at);

-- A reservation may now belong to a packet instead of a payment, and a transfer may come from one.
create table kept_reservation as select id, account_id, outgoing_payment_id, amount, remaining, created_at from reservation;
drop table reservation;
create table reservation (
  id integer primary key,
  account_id integer not null references account,
  outgoing_payment_id text references outgoing_payment,
  packet_id text references packet,
  amount integer not null check (amount > 0),
  remaining integer not null check (remaining between 0 and amount),
  created_at integer not null,
  check ((outgoing_payment_id is null) <> (packet_id is null))
) strict;
create index reservation_of_payment on reservation (outgoing_payment_id);
create index reservation_of_packet on reservation (packet_id) where packet_id is not null;
create index reservation_open on reservation (account_id) where remaining > 0;
insert into reservation (id, account_id, outgoing_payment_id, amount, remaining, created_at) select id, account_id, outgoing_payment_id, amount, remaining, created_at from kept_reservation;
drop table kept_reservation;

create table kept_transfer as select id, debit_account_id, credit_account_id, amount, kind, reservation_id, outgoing_payment_id, incoming_payment_id, created_at from transfer;
drop table transfer;
create table transfer (
  id integer primary key,
  debit_account_id integer not null references account,
  credit_account_id integer not null references account,
  amount integer not null check (amount > 0),
  kind text not null check (kind in ('deposit', 'withdrawal', 'payment', 'fee', 'exchange')),
  reservation_id integer references reservation,
  outgoing_payment_id text references outgoing_payment,
  incoming_payment_id text references incoming_payment,
  created_at integer not null,
  packet_id text references packet,
  check (debit_account_id <> credit_account_id),
  check (reservation_id is null or outgoing_payment_id is not null or packet_id is not null)
) strict;
create index transfer_to_incoming_payment on transfer (incoming_payment_id) where incoming_payment_id is not null;
create index transfer_of_outgoing_payment on transfer (outgoing_payment_id) where outgoing_payment_id is not null;
insert into transfer (id, debit_account_id, credit_account_id, amount, kind, reservation_id, outgoing_payment_id, incoming_payment_id, created_at) select id, debit_account_id, credit_account_id, amount, kind, reservation_id, outgoing_payment_id, incoming_payment_id, created_at from kept_transfer;
drop table kept_transfer;
