"""docs/reference is what `make docs` writes: what the program has is documented, and what is documented exists."""

import pytest

from docs.generate import REFERENCE, contents, pages


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    return dict(pages())


@pytest.mark.parametrize("name", sorted(path.name for path in REFERENCE.glob("*")))
def test_page_is_as_generated(generated: dict[str, str], name: str) -> None:
    assert (REFERENCE / name).read_text(encoding="utf-8") == generated[name], "run `make docs`"


def test_every_page_is_there(generated: dict[str, str]) -> None:
    assert {path.name for path in REFERENCE.glob("*")} == generated.keys()


def test_list_of_documents_is_as_generated() -> None:
    assert (REFERENCE.parent / "llms.txt").read_text(encoding="utf-8") == contents(), "run `make docs`"
