alter table wallet_address add column path_as_read text not null default '';
alter table wallet_address add column name_as_read text;
update wallet_address set path_as_read = as_read(path);
update wallet_address set name_as_read = as_read(public_name) where public_name is not null;
create index wallet_by_path_as_read on wallet_address (path_as_read);
create index wallet_by_name_as_read on wallet_address (name_as_read) where name_as_read is not null;
