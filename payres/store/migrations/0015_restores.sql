-- The last restore is looked up at every start and with every /readyz; whether another server has taken over since, at
-- every start.
create index audit_of_restores on audit (id, created_at) where action = 'database.restore';
create index audit_of_takeovers on audit (id, created_at) where action = 'database.superseded';
