"""The money of packets against an oracle: whatever happens in whatever order, the books hold and nothing is overspent."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from payres import ledger
