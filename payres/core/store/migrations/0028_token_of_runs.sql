alter table server_run add column token text;
