"""SQL of the tables of owners and payers."""
