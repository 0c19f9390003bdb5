from collections.abc import Iterator

import pytest

from payres.testing.instance import Instance, run_instance


@pytest.fixture(scope="session")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """An instance whose settlement worker rests: payments stay under way until a test calls settle().

    For the rest it is as `shared`: each test makes what it needs, and the clock moves forward only.
    """
    with run_instance(tmp_path_factory.mktemp("idle") / "payres.db") as instance, pytest.MonkeyPatch.context() as patch:
        patch.setattr(instance.context.settlement, "wake", lambda: None)
        yield instance
