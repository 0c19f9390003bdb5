"""Scripted servers, which are those of the tests of what asks them."""

from tests.core.remote.conftest import open_site, site  # noqa: F401
