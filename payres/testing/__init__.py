"""Testing: a pytest plugin, a payres instance in the test's process, and a sandbox for tests in any language.

This module is empty, so that an instance can be used without pytest.
"""
