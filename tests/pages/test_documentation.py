import re
from pathlib import Path

from payres.pages.endpoints import ADMIN_PAGES

DOCUMENT = Path(__file__).parents[2] / "docs" / "admin-pages.md"


def test_every_page_is_documented_and_no_other() -> None:
    documented = re.findall(r"^\| `(/admin\S*)` \|", DOCUMENT.read_text(encoding="utf-8"), re.M)
    linked = "/admin/link/{secret}"  # which is told of in words
    assert sorted([*documented, linked]) == sorted(one.path for one in ADMIN_PAGES)
