alter table interaction add column decided_by text check (decided_by in ('owner', 'operator'));
