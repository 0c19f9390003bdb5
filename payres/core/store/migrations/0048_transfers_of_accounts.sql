create index transfer_from_account on transfer (debit_account_id);
create index transfer_to_account on transfer (credit_account_id);
