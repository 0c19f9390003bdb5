alter table access_token add column answers text;
alter table access_token add column sealed blob check ((answers is null) = (sealed is null));
create unique index access_token_by_answered on access_token (answers) where answers is not null;
