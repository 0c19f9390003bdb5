create table server_run (
  id integer primary key,
  killed_after integer
) strict;
