"""What `make dist` makes besides payres.pyz, which downloads what it packs."""

import json
import re
import tarfile
from pathlib import Path

from deploy import dist
from payres import __version__
from tests.helpers import ROOT


def test_the_same_commit_makes_the_same_bytes(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        dist.build(folder)
        dist.list_materials(folder / "materials.json")
        made.append({file.name: dist.sha256(file) for file in folder.iterdir()})
    assert made[0] == made[1]
    assert len(made[0]) == 3
    [sources] = (tmp_path / "one").glob("*.tar.gz")
    with tarfile.open(sources) as archive:
        names = archive.getnames()
    assert {f"payres-{__version__}/{name}" for name in ("app.py", "schema.sql", "payres/application.py")} <= set(names)


def test_materials_are_those_of_the_lock_file(tmp_path: Path) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator  # takes two seconds, which no other test should wait for

    dist.list_materials(tmp_path / "materials.json")
    text = (tmp_path / "materials.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    found = json.loads(text)
    assert (found["bomFormat"], found["metadata"]["component"]["version"]) == ("CycloneDX", __version__)
    locked = re.findall(r"^([a-z0-9-]+)==([^ ;]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert len(locked) > 20
    assert [(one["name"], one["version"]) for one in found["components"]] == locked
    assert all(one["externalReferences"][0]["hashes"] for one in found["components"])
    assert found["components"][0]["purl"].startswith("pkg:pypi/")
