"""What the pages of owners and of operators share."""
