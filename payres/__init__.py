"""payres: a wallet provider in a file, speaking Open Payments from one process on one SQLite database."""

__version__ = "0.2.0.dev0"
