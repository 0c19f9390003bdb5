"""SQL of what only operators read and write."""
