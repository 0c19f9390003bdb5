"""What the owner of a wallet can do without a grant, one module a noun. The audit log names them `owner:<path>`."""
