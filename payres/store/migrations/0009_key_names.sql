-- What an operator calls a key, to tell several of one wallet apart.

alter table wallet_key add column name text;
