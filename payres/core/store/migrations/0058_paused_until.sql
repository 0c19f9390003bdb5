alter table standing_order add column paused_until integer;
