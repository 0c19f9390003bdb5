-- When all invariants of the ledger were last found to hold.

create table ledger_check (
  id integer primary key check (id = 1),
  checked_at integer not null
) strict;
