"""What crosses the wire: structs, errors, URLs, amounts, times."""
