alter table owner add column closed_until integer;
