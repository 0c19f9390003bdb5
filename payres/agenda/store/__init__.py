"""The SQL of the agenda."""
