"""These tests are about the plugin, so they use its fixture: an instance for each test."""

from payres.testing.plugin import payres as payres
