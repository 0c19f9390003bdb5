"""The pages of a wallet's owner, below /account and /settings."""
