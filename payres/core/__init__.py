"""The server of the specification, which knows of no part."""
