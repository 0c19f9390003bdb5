"""payres: a wallet provider in a file, speaking Open Payments from one process on one SQLite database."""

__version__ = "0.1.0"
