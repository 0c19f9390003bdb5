"""The operator's HTTP API: for programs that have an API key, over the same functions as the `payres` command."""
