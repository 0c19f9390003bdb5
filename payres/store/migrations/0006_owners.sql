-- An approval lapses when the client does not continue the grant. Of the approvals so far, those that it never continued
-- are purged as what was denied is.

update "grant" set purge_at = 30 * 86400000000 + (select decided_at from interaction where grant_id = "grant".id)
where state = 'approved' and purge_at is null;
