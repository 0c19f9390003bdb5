-- A browser is known when somebody is inside, and trusted in place of a second factor only until trusted_until.
alter table known_browser add column trusted_until integer;
update known_browser set trusted_until = expires_at
where exists (select 1 from totp t where t.owner_id = known_browser.owner_id or t.operator_id = known_browser.operator_id)
  or exists (select 1 from passkey p where p.owner_id = known_browser.owner_id or p.operator_id = known_browser.operator_id);
