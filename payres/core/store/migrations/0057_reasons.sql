alter table factor_removal add column why text;
alter table refund add column why text;
