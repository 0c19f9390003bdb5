"""The lines at each table of schema.sql with what it promises; the head of schema.sql has their form.

They name constants of the program as `30 days (DECIDED_GRANT)`, so a promise and the program cannot differ.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NamedTuple

from payres.core.protocol.clock import DAY, HOUR, MINUTE, SECOND
from payres.core.store.migrations import schema
from payres.core.store.retention import Rule
from payres.settings import ALL_SETTINGS
from tests.helpers import ROOT

LINES: Final = ("rows", "kept", "times", "restore")
_TABLE: Final = re.compile(r'((?:^--[^\n]*\n)*)^create table "?(\w+)"? \(\n(.*?)^\) strict', re.MULTILINE | re.DOTALL)
_LINE: Final = re.compile(r"^-- (\w+): (.*(?:\n--   .*)*)", re.MULTILINE)
_COLUMN: Final = re.compile(r"^  (\w+) (text|integer|blob|any)\b(.*)$", re.MULTILINE)
_NAMES: Final = r" \(([A-Za-z_.]+(?:, [A-Za-z_.]+)*)\)"
QUANTITY: Final = re.compile(rf"([\d,]+)(?: (second|minute|hour|day)s?)?{_NAMES}")
BARE: Final = re.compile(r"([\d,]+) (second|minute|hour|day)s?\b(?! \([A-Za-z_.])")
BY: Final = re.compile(r", by ([A-Za-z_.]+)$")
UNITS: Final = {"second": SECOND, "minute": MINUTE, "hour": HOUR, "day": DAY}


class Table(NamedTuple):
    """A table: its columns, the integer ones each with the rest of its definition, the tables that it refers to, and
    its lines by their names, `rows` and `times` split into clauses."""

    name: str
    columns: Sequence[str]
    integers: Mapping[str, str]
    refers: Sequence[str]
    lines: Mapping[str, Sequence[str]]

    @property
    def times(self) -> Mapping[str, tuple[str, str]]:
        """What is said of each time column: its kind, and the rest."""
        found: dict[str, tuple[str, str]] = {}
        for clause in self.lines.get("times", ()):
            said = re.fullmatch(r"((?:\w+, )*\w+) (\w+)(.*)", clause)
            found |= dict.fromkeys(said[1].split(", "), (said[2], said[3])) if said else {}
        return found


def tables(text: str | None = None) -> Sequence[Table]:
    """The tables of a text of schema.sql, or of the program's own."""
    found = []
    for comment, name, body in _TABLE.findall(schema() if text is None else text):
        lines: dict[str, list[str]] = {}
        for line, said in _LINE.findall(comment):
            clauses = " ".join(said.replace("\n--   ", " ").split())
            if line in LINES:
                lines.setdefault(line, []).extend(clauses.split("; ") if line in {"rows", "times"} else [clauses])
        all_columns = _COLUMN.findall(body)
        integers = {column: rest for column, kind, rest in all_columns if kind == "integer"}
        columns = [column for column, _, _ in all_columns]
        found.append(Table(name, columns, integers, re.findall(r"\breferences \"?(\w+)", body), lines))
    return found


class Quantity(NamedTuple):
    """A quantity of a line, and the same in the program, in microseconds if it is a time."""

    text: str
    said: int
    names: Sequence[str]
    meant: Sequence[Any]


def quantities(line: str) -> Iterator[Quantity]:
    """Those with names of the program."""
    for found in QUANTITY.finditer(line):
        number, unit, names = int(found[1].replace(",", "")), found[2], found[3].split(", ")
        meant = [_in_units(name, value_of(name), is_time=unit is not None) for name in names]
        yield Quantity(found[0], number * UNITS.get(unit or "", 1), names, meant)


def plain(line: str) -> str:
    """A line as documents have it: without names of the program."""
    return re.sub(rf"(?<=[\w.]){_NAMES}", "", re.sub(r", with \w+$", "", BY.sub("", line)))


def _in_units(name: str, value: Any, *, is_time: bool) -> Any:
    if isinstance(value, Sequence):  # pauses, of which the longest counts
        value = max(value)
    if not is_time or not isinstance(value, int):
        return value
    if name in ALL_SETTINGS:
        return value * SECOND
    return value * next((one for unit, one in UNITS.items() if name.endswith(f"_{unit}s".upper())), 1)


def value_of(name: str) -> Any:
    """What a name of the program means: a setting, a limit, or what a module has, if need be after the module's name,
    as `events.KEPT`, or an attribute of it, as `SIGN_INS.after`. None if there is none; LookupError if several."""
    if name in ALL_SETTINGS:
        return ALL_SETTINGS[name].default
    before, _, last = name.rpartition(".")
    if before and not before.islower():
        return getattr(value_of(before), last, None)
    modules = [one for one in _defining(last) if not before or one.split(".")[-1] == before]
    if len(modules) > 1:
        raise LookupError(f"{name} is in {', '.join(modules)}: put the module's name before it")
    return getattr(import_module(modules[0]), last) if modules else None


@cache
def limits() -> Mapping[str, ModuleType]:
    """Each limit by its name, with the module of the core or of a part that has it."""
    modules = [name for name in _sources() if name.endswith(".limits") and name != "payres.core.grants.spending_limits"]
    return {name: found for found in map(import_module, modules) for name in vars(found) if name.isupper()}


@cache
def _sources() -> Mapping[str, str]:
    files = (
        path
        for part in ("core", "agenda", "interledger", "webhooks", "html", "accounts", "people", "operator")
        for path in sorted((ROOT / "payres" / part).rglob("*.py"))
    )
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text(encoding="utf-8") for path in files}


@cache
def _defining(name: str) -> Sequence[str]:
    """The modules of the server that define a name at their top."""
    defined = re.compile(rf"^(?:{name}(?:: Final)?(?:\[.*\])? = |(?:async )?def {name}\()", re.MULTILINE)
    return [module for module, text in _sources().items() if defined.search(text)]


@cache
def declared(kind: str) -> Mapping[str, Any]:
    """Each value of a type, such as a retention Rule, by its module and name."""
    found = {}
    for module, text in _sources().items():
        for name in re.findall(rf"^(\w+)(?:: Final)? = {kind}\(", text, re.MULTILINE):
            found[f"{module.split('.')[-1]}.{name}"] = getattr(import_module(module), name)
    made = sum(len(re.findall(rf"(?<!class )\b{kind}\(", text)) for text in _sources().values())
    assert len(found) == made, f"each {kind} is a name at the top of a module"
    return found


def rules() -> Mapping[str, Rule]:
    """Each retention Rule, by its module and name."""
    return declared("Rule")
