"""The pages of operators, with the lists and forms of operations."""
