"""What makes an operation a command, an endpoint, a form, a list and a row of the audit log."""
