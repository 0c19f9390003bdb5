"""SQL of accounts: sessions, second factors, passkeys, mail."""
