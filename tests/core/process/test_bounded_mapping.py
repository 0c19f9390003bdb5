"""A mapping with a limit keeps what was set last."""

from payres.core.process.bounded_mapping import Newest


def test_oldest_is_forgotten_and_what_is_set_again_is_the_newest() -> None:
    kept = Newest[str, int](2)
    for key, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        kept[key] = value
    assert list(kept.items()) == [("a", 3), ("c", 4)]
    kept |= {"d": 5, "a": 6}
    assert list(kept.items()) == [("d", 5), ("a", 6)]
