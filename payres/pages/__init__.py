"""HTML pages: for owners (`account/`), consent, payments and wallets, and for operators (`admin/`)."""
