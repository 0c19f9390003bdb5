"""What owners, payers and visitors see and do."""
