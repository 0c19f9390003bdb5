"""SQL of the Interledger node's tables."""
