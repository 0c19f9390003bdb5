"""The Interledger node: the payment details that senders address payments to."""
