"""The HTTP endpoints, one module per resource: authorize, decode, call one function, encode. No SQL and no rules."""
