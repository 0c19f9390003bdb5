update wallet_address set path_as_read = as_read(path);
update wallet_address set name_as_read = as_read(public_name) where public_name is not null;
