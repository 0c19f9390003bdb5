"""The HTTP endpoints, one module a resource: authorize, decode, call one function, encode. No SQL and no rules."""
