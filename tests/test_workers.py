"""What `make test` says of tests that it runs in several processes."""

import pytest

CONFTEST = """
from tests.workers import run_in_workers

def pytest_runtestloop(session):
    run_in_workers(session, 2, [session.path / "test_last.py"])
    return True
"""
FILES = {
    "test_first": """
        import pytest

        @pytest.mark.parametrize("number", range(5))
        def test_passing(number): print(number)

        def test_failing(tmp_path):
            print("said before")
            assert tmp_path == 1

        @pytest.fixture
        def broken():
            yield
            raise ValueError("broken")

        def test_left_broken(broken): pass

        def test_skipped(): pytest.skip("a reason")
    """,
    "test_ended": """
        import os

        def test_passing(): pass

        def test_ended(): os._exit(7)
    """,
    "test_last": """
        def test_passing(record_property): record_property("figure", 1)
    """,
}


def test_all_is_run_once_and_reported(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(**FILES)
    done = pytester.runpytest_subprocess("-p", "no:randomly")
    done.assert_outcomes(passed=8, failed=2, errors=1, skipped=1)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines_random(
        [
            "said before",
            "*ValueError: broken",
            "the process that ran this test ended with status 7",
            "FAILED test_ended.py::test_ended - *",
            "FAILED test_first.py::test_failing - *",
            "ERROR test_first.py::test_left_broken - *",
        ]
    )
