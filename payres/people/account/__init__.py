"""The pages of owners."""
