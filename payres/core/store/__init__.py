"""The store: the SQLite database and all of payres's SQL, one module for each group of tables."""
