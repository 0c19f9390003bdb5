alter table packet add column minimum integer not null default 0 check (minimum >= 0);
