-- A key of a client on another server is good for as long as that server says. Those so far are fetched again.

alter table client_key add column good_until integer;
