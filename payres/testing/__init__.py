"""For tests: a pytest plugin, a payres instance that runs beside a test, and a client that signs.

Empty, so that an instance can be used without pytest.
"""
