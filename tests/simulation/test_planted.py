"""Planted faults fit the program as it is now."""

import subprocess

import pytest

from tests.simulation.planted import PATCHES, TOP, described


@pytest.mark.parametrize("name", sorted(patch.stem for patch in PATCHES.glob("*.patch")))
def test_planted_fault_fits_and_says_what_is_wrong(name: str) -> None:
    patch = PATCHES / f"{name}.patch"
    about, tests = described(name)
    assert " Noticed by: " in about
    assert not tests or (TOP / tests).is_file()
    fits = subprocess.run(["git", "apply", "--check", str(patch)], cwd=TOP, capture_output=True, text=True, check=False)
    assert fits.returncode == 0, f"make it again for the program as it is: {fits.stderr}"
