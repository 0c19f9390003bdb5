"""The map of the code, held to: which room may use which, where SQL and transactions live, and how long things get."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "payres").rglob("*.py"))
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60

# Plain values and the shapes that cross HTTP: every room but `signatures` may use these.
VALUES = {"amounts", "clock", "errors", "identifiers", "settings", "urls", "wire"}
# What the operator has and sets up: the nouns that the commands and the demo work on.
HOLDINGS = {"assets", "audit", "external", "keys", "operator_accounts", "passwords", "wallets"}
# From the ground up, what each room may use besides itself. A room is a package or a module right under payres.
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "amounts": set(),
    "clock": set(),
    "identifiers": set(),
    "urls": {"errors"},
    "settings": {"errors", "urls"},
    "wire": {"amounts", "errors", "urls"},
    "signatures": set(),
    "store": {"amounts", "clock", "errors", "urls"},
    "ledger": VALUES | {"store"},
    **{holding: VALUES | {"ledger", "signatures", "store"} | HOLDINGS - {holding} for holding in sorted(HOLDINGS)},
    "grants": VALUES | {"passwords", "signatures", "store"},
    "payments": VALUES | {"grants", "ledger", "store"},
    "federation": VALUES | {"signatures", "store"},
    "interledger": VALUES | {"federation", "ledger", "payments", "store"},
    "routes": VALUES | {"federation", "grants", "interledger", "payments", "signatures", "store"},
}
# These put the rooms together and may use all of them; the value is what they may use of each other.
ENTRANCES: dict[str, set[str]] = {
    "application": set(),
    "testing": {"application"},
    "demo": {"application"},
    "cli": {"application", "demo"},
    "__main__": {"cli"},
}
BEGINS_TRANSACTIONS = {"payres/cli/session.py", "payres/store/database.py", "payres/store/migrations/__init__.py"}
MONEY = ("payres/amounts.py", "payres/ledger.py", "payres/payments/", "payres/store/")
LEDGER_WRITES = {
    *("insert_account", "change_account", "insert_transfer", "insert_reservation", "reduce_reservation"),
}

STATEMENT = re.compile(
    r"\s*(select\s|insert\s+(or\s+\w+\s+)?into\s|update\s+\S+\s+set\s|delete\s+from\s|with\s+\w+\s+as\s)", re.I
)
TRANSACTION = re.compile(r"\s*(begin|commit|rollback|savepoint|release|end)\b(?!\S)(\s+(to\s+)?\w+)?\s*$")


@cache
def tree(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"), module)


def room_of(dotted: str) -> str:
    """The room of a dotted name under payres; the package itself holds only its version."""
    return (dotted.split(".") + [""])[1]


def dotted(module: str) -> str:
    return module.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def imported(module: str) -> Iterator[tuple[str, int]]:
    """The dotted names under payres that a module imports, with the line of each, also inside functions."""
    package = (ROOT / module).parent.relative_to(ROOT).parts
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from ((name.name, node.lineno) for name in node.names if name.name.split(".")[0] == "payres")
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
            source = ".".join(filter(None, (base, node.module)))
            if source.split(".")[0] == "payres":
                yield from ((f"{source}.{name.name}", node.lineno) for name in node.names)


def strings(module: str) -> Iterator[tuple[str, int]]:
    """The text of every string of a module, formatted ones up to their first value, with its line; no docstrings."""
    parts = {id(part) for node in ast.walk(tree(module)) if isinstance(node, ast.JoinedStr) for part in node.values[1:]}
    docstrings = {id(node.value) for node in ast.walk(tree(module)) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | docstrings:
            yield node.value, node.lineno


def called(node: ast.AST) -> str:
    """The last name of what a call calls, or nothing."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def test_every_module_is_in_a_room() -> None:
    rooms = {room_of(dotted(module)) for module in MODULES} - {""}
    assert rooms <= ROOMS.keys() | ENTRANCES.keys(), "a new room needs its line in ROOMS: what may it use?"


def test_rooms_use_only_what_lies_below_them() -> None:
    order = list(ROOMS)
    for room, uses in ROOMS.items():
        below = set(order[: order.index(room)])
        assert uses - HOLDINGS <= below - HOLDINGS, room
        assert room in HOLDINGS or uses <= below, room


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_only_what_its_room_may_use(module: str) -> None:
    room = room_of(dotted(module))
    allowed = ROOMS[room] if room in ROOMS else ROOMS.keys() | ENTRANCES.get(room, set())
    for name, line in imported(module):
        if name != "payres.__version__":
            assert room_of(name) in allowed | {room}, f"{module}:{line} imports {name}"


def test_holdings_do_not_use_each_other_in_circles() -> None:
    uses = {
        room: {room_of(name) for name, _ in imported(f"payres/{room}.py")} & HOLDINGS
        for room in HOLDINGS
        if f"payres/{room}.py" in MODULES
    }
    while uses:
        settled = {room for room, used in uses.items() if not used & uses.keys()}
        assert settled, f"these use each other: {uses}"
        uses = {room: used for room, used in uses.items() if room not in settled}


def test_asgi_entry_uses_the_application_and_its_settings_alone() -> None:
    assert {room_of(name) for name, _ in imported("app.py")} == {"application", "settings"}


@pytest.mark.parametrize("module", [module for module in MODULES if not module.startswith("payres/store/")])
def test_sql_is_written_in_the_store_alone(module: str) -> None:
    found = [f"{module}:{line}: {text!r}" for text, line in strings(module) if STATEMENT.match(text)]
    assert not found


@pytest.mark.parametrize("module", sorted(set(MODULES) - BEGINS_TRANSACTIONS))
def test_units_leave_their_transaction_alone(module: str) -> None:
    found = [f"{module}:{line}: {text!r}" for text, line in strings(module) if TRANSACTION.match(text.lower())]
    calls = [node for node in ast.walk(tree(module)) if called(node) in {"commit", "rollback", "executescript"}]
    assert not found
    assert not [f"{module}:{node.lineno}" for node in calls if isinstance(node, ast.Call)]


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"payres/store/database.py"}))
def test_nobody_awaits_single_statements(module: str) -> None:
    methods = {"execute", "executemany", "executescript", "execute_fetchall", "execute_insert", "commit", "rollback"}
    for node in ast.walk(tree(module)):
        assert not (isinstance(node, ast.Await) and called(node.value) in methods), f"{module}:{node.lineno}"
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [getattr(node, "module", None) or "", *(name.name for name in node.names)]
            assert not [name for name in names if name.split(".")[0] == "aiosqlite"], f"{module}:{node.lineno}"


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"payres/ledger.py", "payres/store/accounts.py"}))
def test_money_moves_in_the_ledger_alone(module: str) -> None:
    found = [
        node.lineno for node in ast.walk(tree(module)) if isinstance(node, ast.Call) and called(node) in LEDGER_WRITES
    ]
    assert not found


@pytest.mark.parametrize("module", [module for module in MODULES if module.startswith(MONEY)])
def test_money_is_never_a_float(module: str) -> None:
    for node in ast.walk(tree(module)):
        literal = isinstance(node, ast.Constant) and isinstance(node.value, float | complex)
        named = isinstance(node, ast.Name) and node.id in {"float", "complex"}
        assert not literal, f"{module}:{getattr(node, 'lineno', 0)}"
        assert not named, f"{module}:{getattr(node, 'lineno', 0)}"


@pytest.mark.parametrize("module", MODULES)
def test_module_and_its_functions_stay_short(module: str) -> None:
    assert len((ROOT / module).read_text(encoding="utf-8").splitlines()) <= MAX_MODULE_LINES
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < MAX_FUNCTION_LINES, f"{module}:{node.lineno} {node.name}"


@pytest.mark.parametrize(
    ("text", "is_statement"),
    [
        ("SELECT 1", True),
        ("\n  insert into a values (1)", True),
        ("INSERT OR REPLACE INTO a VALUES (1)", True),
        ("UPDATE a SET x = 1", True),
        ('UPDATE "grant" SET x = 1', True),
        ("DELETE FROM a", True),
        ("WITH a AS (SELECT 1) SELECT * FROM a", True),
        ("DELETE", False),
        ("Select the wallet", True),
        ("Update payres first", False),
        ("Insert a coin", False),
        ("with care", False),
    ],
)
def test_statement_is_known_by_its_first_words(text: str, is_statement: bool) -> None:
    assert bool(STATEMENT.match(text)) == is_statement


@pytest.mark.parametrize(
    ("text", "is_transaction"),
    [
        ("BEGIN", True),
        ("BEGIN IMMEDIATE", True),
        ("COMMIT", True),
        ("ROLLBACK TO unit", True),
        ("RELEASE part", True),
        ("begin with a wallet address", False),
        ("Ends the grant", False),
        ("released", False),
    ],
)
def test_transaction_is_known_by_its_words(text: str, is_transaction: bool) -> None:
    assert bool(TRANSACTION.match(text.lower())) == is_transaction
