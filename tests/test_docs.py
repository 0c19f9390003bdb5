"""The documents against the program: what is documented exists, what exists is documented, and what is shown runs."""

import os
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent

import click
import msgspec
import pytest

from payres import __version__
from payres.settings import ALL_SETTINGS
from tests.helpers import ROOT, commands
from tests.pythons import ROOMS, VERSIONS, find
from tests.torture import ALL

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def rows(document: str) -> Iterator[list[str]]:
    """The cells of every table row of a document, without the header's rule."""
    for line in text_of(document).splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def first_words(document: str) -> set[str]:
    """What stands as code in the first cell of some table row."""
    return {word for cells in rows(document) for word in re.findall(r"`([^`]+)`", cells[0])}


def blocks(text: str, language: str) -> list[str]:
    """The fenced code blocks in a language; an empty one is for the shell."""
    fenced = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.M | re.S)
    return [dedent(content) for _, named, content in fenced if named == language]


def shell_lines(text: str) -> list[str]:
    """The commands in blocks for the shell; one that goes on after a backslash is one line here."""
    return [line for block in blocks(text, "") for line in block.replace("\\\n", "").splitlines()]


COMMANDS = commands()
PREFIXES = r"sudo -u payres |\.venv/bin/"  # of a service, and of a checkout
EXAMPLES = sorted(
    {
        line
        for document in DOCUMENTS
        for line in shell_lines(document.read_text(encoding="utf-8"))
        if re.match(rf"({PREFIXES})?payres ", line)
    }
)


def heading_ids(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a document."""
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)]+)\)", text):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), f"{document.name} links to {link}"
        if anchor:
            assert anchor in heading_ids(target.read_text(encoding="utf-8")), f"{document.name} links to {link}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_first_command_stands_within_ten_lines(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    if blocks(text, "") and document.parent.name != "reference":
        assert "\n```\n" in "\n".join(text.splitlines()[:10])


def test_every_document_can_be_reached_from_the_readme_and_has_a_place_in_the_site() -> None:
    there = {path.relative_to(ROOT).as_posix() for path in DOCUMENTS}
    linked = set(re.findall(r"\]\(((?:docs/)?[\w/-]+\.md)\)", text_of("README.md")))
    assert there - {"README.md"} <= linked
    shown = re.findall(r"^ +- (?:\w+: )?(\S+\.md)$", text_of("mkdocs.yml"), re.M)
    assert sorted(shown) == sorted(there | {"benchmarks/figures.md", "benchmarks/torture.md"})


def test_template_shows_every_setting_with_its_default() -> None:
    shown = dict(re.findall(r"^# (\w+) = (.+)$", text_of("payres/cli/payres.toml"), re.M))
    expected = {field.name: msgspec.json.encode(field.default).decode() for field in ALL_SETTINGS.values()}
    assert shown == expected


def test_settings_file_in_deploy_is_what_init_writes_with_the_places_of_the_unit() -> None:
    lines = zip(text_of("deploy/payres.toml").splitlines(), text_of("payres/cli/payres.toml").splitlines(), strict=True)
    changed = [deployed for deployed, written in lines if deployed != written]
    assert changed == ['base_url = "https://pay.example.com"', 'database = "/var/lib/payres/payres.db"']
    assert "StateDirectory=payres" in text_of("deploy/payres.service")


@pytest.mark.parametrize("line", EXAMPLES)
def test_shown_command_is_understood(line: str) -> None:
    words = shlex.split(re.sub(rf"^({PREFIXES})", "", line))
    name = max((name for name in COMMANDS if words[: len(name.split())] == name.split()), key=len, default=None)
    assert name is not None, line
    command = COMMANDS[name]
    command.make_parser(click.Context(command)).parse_args(words[len(name.split()) :])


def sentences(document: Path) -> str:
    """The text without blocks of code. Of the changes, those of the newest version, without what was removed in it: a
    command that is gone is named there alone."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)
    if document.name == "CHANGELOG.md":
        newest = text.split("\n## ")[1]
        text = "\n".join(
            one for one in re.split(r"\n(?=- )", newest) if not re.search(r"\b(is|are|was|were)\s+removed\b", one)
        )
    return re.sub(r"\s+", " ", text)


def test_commands_that_are_gone_are_named_in_the_changes_alone(tmp_path: Path) -> None:
    newest, older = "- **`payres peer doubts` is\n  removed.**\n- `payres new`", "- `payres old`"
    path = tmp_path / "CHANGELOG.md"
    path.write_text(f"# Changes\n\n## 0.2.0\n\n{newest}\n\n## 0.1.0\n\n{older}\n")
    assert re.findall(r"`(.+?)`", sentences(path)) == ["payres new"]
    other = path.rename(tmp_path / "other.md")
    assert re.findall(r"`(.+?)`", sentences(other)) == ["payres peer doubts", "payres new", "payres old"]


def test_commands_named_in_sentences_exist() -> None:
    groups = {name.rpartition(" ")[0] for name in COMMANDS}
    for document in DOCUMENTS:
        text = sentences(document)
        for name, word in re.findall(r"`(payres ([a-z][a-z-]+)(?: [a-z][a-z-]*)?)", text):
            assert {name, f"payres {word}"} & (groups | COMMANDS.keys()), f"{document.name} names {name}"
            assert f"payres {word}" not in groups or name in groups | COMMANDS.keys(), f"{document.name} names {name}"


def test_every_make_target_is_documented() -> None:
    targets = set(re.findall(r"^([a-z]+):.*##", text_of("Makefile"), re.M))
    assert {f"make {target}" for target in targets} == {
        word for word in first_words("CONTRIBUTING.md") if word.startswith("make ")
    }
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        shown = {line.removeprefix("make ") for line in shell_lines(text) if line.startswith("make ")}
        assert shown | set(re.findall(r"`make ([a-z]+)`", text)) <= targets, document.name


def test_versions_of_python_are_those_that_are_tested() -> None:
    said = {found for one in DOCUMENTS for found in re.findall(r"Python (3\.\d+) to (3\.\d+)", one.read_text("utf-8"))}
    assert said == {(VERSIONS[0], VERSIONS[-1])}
    assert "make test\nmake pythons\n" in text_of(".ci/run")


def test_tests_that_are_named_are_there() -> None:
    named = {f"tests/{room}" for room in ROOMS}
    named |= {path for series in ALL.values() for path in series.tests if path.startswith("tests")}
    for document in DOCUMENTS:
        named |= set(re.findall(r"\btests/[\w/.-]*\w", document.read_text(encoding="utf-8")))
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_python_that_does_not_start_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert find("3.99") is None
    shim.write_text("#!/bin/sh\nexit 0\n")
    assert find("3.99") == "python3.99"
    assert find("3.98") is None


def test_every_room_is_on_the_map() -> None:
    modules = {path.name for path in (ROOT / "payres").glob("*.py") if not path.stem.startswith("__")}
    packages = {f"payres/{path.parent.name}/" for path in (ROOT / "payres").glob("*/__init__.py")}
    assert {name for name in modules | packages if name not in text_of("docs/architecture.md")} == set()


def test_version_is_that_of_the_newest_changes() -> None:
    newest, unreleased = re.findall(r"^## (\S+)( \(unreleased\))?$", text_of("CHANGELOG.md"), re.M)[0]
    assert __version__ == (f"{newest}.dev0" if unreleased else newest)


def test_shown_tests_pass(pytester: pytest.Pytester) -> None:
    shown = 0
    for document in ("README", "docs/testing"):
        examples = blocks(text_of(f"{document}.md"), "python")
        assert examples
        for number, example in enumerate(examples):
            name = f"test_{document.rpartition('/')[2]}_{number}.py"
            pytester.path.joinpath(name).write_text(example, encoding="utf-8")
            shown += example.count("\ndef test_") + example.startswith("def test_")
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:schemathesis").assert_outcomes(passed=shown)
