-- The last restore is looked up at every start and with every /readyz.
create index audit_of_restores on audit (id, created_at) where action = 'database.restore';
