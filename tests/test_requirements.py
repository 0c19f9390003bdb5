"""What pyproject.toml requires, and the lock files made from it."""

import re
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.helpers import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GROUPS = PROJECT["dependency-groups"]
DEPENDENCIES = [Requirement(line) for line in PROJECT["project"]["dependencies"]]
# payres subclasses or implements what these do not promise to keep.
INTERNALS_USED = {"aiosqlite", "uvicorn"}


def locked(name: str) -> dict[str, Version]:
    """The version of each package in a lock file."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return {canonicalize_name(name): Version(version) for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.M)}


def test_one_minor_is_allowed_of_each_library_whose_internals_are_used() -> None:
    bounded = {}
    for requirement in DEPENDENCIES:
        bounds = {bound.operator: Version(bound.version) for bound in requirement.specifier}
        least, end = bounds[">="], bounds.get("<")
        if end is not None and end.release == (least.major, least.minor + 1):
            bounded[requirement.name] = least
    assert bounded.keys() >= INTERNALS_USED


@pytest.mark.parametrize(
    ("lock", "required"),
    [
        ("requirements.lock", DEPENDENCIES),
        ("requirements-build.lock", [Requirement(line) for line in GROUPS["build"]]),
        ("requirements-dev.lock", [*DEPENDENCIES, *(Requirement(line) for group in GROUPS.values() for line in group)]),
    ],
)
def test_lock_has_what_is_required(lock: str, required: list[Requirement]) -> None:
    versions = locked(lock)
    unmet = [str(one) for one in required if versions[canonicalize_name(one.name)] not in one.specifier]
    assert unmet == []


def test_locks_agree() -> None:
    everything = locked("requirements-dev.lock")
    for name in ("requirements.lock", "requirements-build.lock"):
        versions = locked(name)
        assert {package: everything.get(package) for package in versions} == versions


def test_what_only_builds_or_tests_is_not_in_the_lock_of_the_program() -> None:
    tools = {canonicalize_name(Requirement(line).name) for group in GROUPS.values() for line in group}
    assert tools.isdisjoint(locked("requirements.lock"))
    assert locked("requirements.lock").keys().isdisjoint(locked("requirements-build.lock"))


def test_this_python_is_among_those_announced() -> None:
    prefix = "Programming Language :: Python :: "
    announced = [line.removeprefix(prefix) for line in PROJECT["project"]["classifiers"] if line.startswith(prefix)]
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in announced
    assert f">={announced[0]}" == PROJECT["project"]["requires-python"]
