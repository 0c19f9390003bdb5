-- The last backup is found without reading the whole audit log.

create index audit_of_backups on audit (id, created_at) where action = 'database.backup';
