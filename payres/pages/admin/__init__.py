"""The operator's pages, including the lists and forms of operations."""
