alter table standing_order add column first_window integer not null default 0 check (first_window >= 0);
