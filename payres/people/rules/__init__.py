"""What owners can do without a grant."""
