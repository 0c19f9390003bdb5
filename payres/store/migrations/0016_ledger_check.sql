-- When the invariants of the ledger were last checked, and the first of them that did not hold then.

create table ledger_check (
  id integer primary key check (id = 1),
  checked_at integer not null,
  broken text
) strict;
