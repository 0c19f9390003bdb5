alter table peer add column note text;
