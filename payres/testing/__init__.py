"""For tests: a pytest plugin, a payres that runs beside a test, and a sandbox for tests in any language.

Empty, so that an instance can be used without pytest.
"""
