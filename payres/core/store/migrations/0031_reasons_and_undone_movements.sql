alter table interaction add column reason text;
alter table movement add column undoes text references movement;
create unique index movement_undoing on movement (undoes) where undoes is not null;
