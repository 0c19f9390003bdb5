"""What tests need of a payres: the pytest plugin, an instance that runs beside a test, and a client that signs.

Empty, so that an instance can be had where pytest is not installed.
"""
