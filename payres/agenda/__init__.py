"""Work that is due by rows of parts, such as mails and standing orders."""
