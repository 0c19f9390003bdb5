"""The operator's pages, for people with a browser: what the operator's API shows, and some of what it does."""
