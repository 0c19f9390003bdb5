"""Pages for people: of owners (`account/`), of consent, of bills and wallets, and of operators (`admin/`)."""
