"""The map of the code, held to: which room may use which, where SQL and transactions live, and how long things get."""

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.helpers import ROOT

MODULES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "payres").rglob("*.py"))
MAX_MODULE_LINES = 600
MAX_FUNCTION_LINES = 60

# Plain values, the shapes that cross HTTP, slots and workers: every room above the store may use these.
VALUES = {
    *("amounts", "clock", "counters", "errors", "event_types", "identifiers", "limits", "logs", "rate_limiter"),
    *("brand_settings", "gnap", "settings", "slots", "terms", "urls", "visible", "wire", "worker"),
}
# What runs on other threads beside the event loop, and what bounds how much of it there is at a time.
THREADS = {
    "payres/core/grants/passwords.py": "the slots of PasswordGate, with threads of its own",
    "payres/core/store/database.py": "one batch of a lane at a time, on the lane's own thread",
    "payres/operator/api.py": "the document, which is cached",
    "payres/core/http/routing.py": "imports, under a lock; the document, which is cached",
    "payres/operator/steps.py": "one backup at a time, under a slot",
    "payres/operator/monitoring.py": "milliseconds for each answer of /metrics, to permitted hosts",
    "payres/testing/actions.py": "the document, which is cached",
    "payres/testing/sandbox.py": "one reset at a time, under a lock",
    "payres/core/remote/ip_addresses.py": "the slots of Lookups",
    "payres/client/deadlines.py": "a lookup for each new connection of a client for threads, which the server is not",
}
# From the ground up, what each room may use besides itself. A room is a package or a module right under payres.
ROOMS: dict[str, set[str]] = {
    "limits": set(),
    "identifiers": set(),
    "signatures": {"identifiers", "limits"},
    "errors": {"signatures"},  # for the reasons of rejected signatures
    "amounts": set(),
    "terms": {"amounts"},
    "clock": set(),
    "counters": set(),
    "slots": set(),
    "worker": set(),
    "rate_limiter": {"clock", "errors", "limits"},
    "logs": {"clock", "rate_limiter"},
    "urls": {"errors", "limits"},
    "brand_settings": set(),
    "visible": {"urls"},
    "settings": {"brand_settings", "errors", "identifiers", "limits", "logs", "urls", "visible"},
    "wire": {"amounts", "errors", "limits", "urls"},
    "gnap": {"limits", "wire"},
    "event_types": {"wire"},
    "client": {"amounts", "clock", "event_types", "gnap", "identifiers", "limits", "signatures", "urls", "wire"},
    "store": {
        *("amounts", "clock", "errors", "event_types", "identifiers", "limits", "counters"),
        *("settings", "terms", "urls", "visible", "wire"),
    },
    "representations": {"amounts", "clock", "event_types", "store", "urls", "wire"},
    "ledger": VALUES | {"store"},
    "grants": VALUES | {"representations", "signatures", "store"},
    "payments": VALUES | {"grants", "ledger", "representations", "store"},
    "federation": VALUES | {"client", "signatures", "store"},
    "events": VALUES | {"federation", "representations", "store"},
    "interledger": VALUES | {"federation", "ledger", "payments", "representations", "store"},
    "operator": VALUES
    | {
        *("events", "federation", "grants", "interledger", "ledger", "payments", "representations"),
        *("signatures", "store"),
    },
    "http": VALUES | {"signatures"},  # to show what was sent in a sentence
    "openapi": VALUES | {"http"},
    "routes": VALUES
    | {
        *("events", "federation", "grants", "http", "interledger", "openapi", "operator", "payments"),
        *("representations", "signatures", "store"),
    },
    "admin": VALUES
    | {
        *("events", "grants", "http", "ledger", "openapi", "operator", "payments", "representations", "routes"),
        *("signatures", "store"),
    },
    "owner": VALUES
    | {
        "client",
        "federation",
        "grants",
        "interledger",
        "ledger",
        "operator",
        "payments",
        "representations",
        "signatures",
        "store",
    },
    "pages": VALUES
    | {"admin", "grants", "http", "operator", "owner", "payments", "representations", "routes", "store"},
}
# These put the rooms together and may use all of them; the value is what they may use of each other.
ENTRANCES: dict[str, set[str]] = {
    "application": set(),
    "testing": {"application"},
    "cli": {"application", "testing"},
    "__main__": {"cli"},
}
BEGINS_TRANSACTIONS = {
    *(
        "payres/cli/session.py",
        "payres/core/store/connections.py",
        "payres/core/store/copies.py",
        "payres/core/store/lanes.py",
    ),
    "payres/core/store/transactions.py",
    "payres/store/migrations/__init__.py",
}
MONEY = (
    *(
        "payres/core/protocol/amounts.py",
        "payres/interledger/settlement.py",
        "payres/core/payments/ledger.py",
        "payres/payments/",
    ),
    "payres/store/",
)
LEDGER_WRITES = {
    *("insert_account", "change_account", "change_floor"),
    *("insert_transfer", "insert_hold", "reduce_hold"),
}
ENDS_TRANSACTIONS = {"commit", "rollback", "executescript"}
STATEMENT_METHODS = ENDS_TRANSACTIONS | {"execute", "executemany", "execute_fetchall", "execute_insert"}
STATEMENT = re.compile(
    r"\s*(SELECT\s|(?i:select\s.*\sfrom\s|insert\s+(or\s+\w+\s+)?into\s|update\s+\S+\s+set\s|delete\s+from\s"
    r"|with\s+\w+\s+as\s))",
    re.DOTALL,
)
TRANSACTION = re.compile(r"\s*(begin|commit|rollback|savepoint|release)(\s+(to\s+)?\w+)?\s*", re.IGNORECASE)


@cache
def tree(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"), module)


@cache
def nodes(module: str) -> tuple[ast.AST, ...]:
    """All of a module's tree, which is walked again and again."""
    return tuple(ast.walk(tree(module)))


def room_of(name: str) -> str:
    """The room of a dotted name under payres; nothing for the package itself, which holds only its version."""
    return ([*name.split("."), ""])[1]


def room(module: str) -> str:
    return room_of(module.removesuffix(".py").replace("/", ".").removesuffix(".__init__"))


def imported(module: str) -> Iterator[tuple[str, int]]:
    """The dotted names under payres that a module imports, with the line of each, also inside functions."""
    package = (ROOT / module).parent.relative_to(ROOT).parts
    for node in nodes(module):
        if isinstance(node, ast.Import):
            yield from ((name.name, node.lineno) for name in node.names if name.name.split(".")[0] == "payres")
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
            source = ".".join(filter(None, (base, node.module)))
            if source.split(".")[0] == "payres":
                yield from ((f"{source}.{name.name}", node.lineno) for name in node.names)


def strings(module: str) -> Iterator[tuple[str, int]]:
    """The text of every string of a module, formatted ones up to their first value, with its line; no docstrings."""
    parts = {id(part) for node in nodes(module) if isinstance(node, ast.JoinedStr) for part in node.values[1:]}
    docstrings = {id(node.value) for node in nodes(module) if isinstance(node, ast.Expr)}
    for node in nodes(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | docstrings:
            yield node.value, node.lineno


def called(node: ast.AST) -> str:
    """The last name of what a call calls, or nothing."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def calls(module: str) -> Iterator[tuple[str, int]]:
    """The last name of everything a module calls, with its line."""
    for node in nodes(module):
        if isinstance(node, ast.Call):
            yield called(node), node.lineno


def place(module: str, line: int) -> str:
    return f"{module}:{line}"


def test_every_module_is_in_a_room() -> None:
    rooms = {room(module) for module in MODULES} - {""}
    assert rooms <= ROOMS.keys() | ENTRANCES.keys(), "a new room needs its line in ROOMS: what may it use?"


def test_map_points_downwards() -> None:
    order = list(ROOMS)
    for name, uses in ROOMS.items():
        below = set(order[: order.index(name)])
        assert uses <= below, name


def test_modules_import_only_what_their_room_may_use() -> None:
    found = []
    for module in MODULES:
        here = room(module)
        allowed = ROOMS[here] if here in ROOMS else ROOMS.keys() | ENTRANCES.get(here, set())
        names = [(name, line) for name, line in imported(module) if name != "payres.__version__"]
        found += [f"{module}:{line} {name}" for name, line in names if room_of(name) not in allowed | {here}]
    assert not found


def test_asgi_entry_uses_the_application_and_its_settings_alone() -> None:
    assert {room_of(name) for name, _ in imported("app.py")} == {"application", "settings"}


def test_what_runs_on_other_threads_is_bounded() -> None:
    """What is unbounded there keeps all others of the same pool waiting."""
    servers = [module for module in MODULES if room(module) not in ENTRANCES.keys() - {"testing"}]
    names = {"to_thread", "run_in_executor", "run_in_threadpool", "run_sync", "Thread"}
    found = {module for module in servers for name, _ in calls(module) if name in names}
    assert found - {"payres/testing/instance.py", "payres/testing/receiver.py"} == THREADS.keys()


def test_sql_is_written_in_the_store_alone() -> None:
    outside = [module for module in MODULES if room(module) != "store"]
    assert not [place(module, line) for module in outside for text, line in strings(module) if STATEMENT.match(text)]
    inside = [text for module in MODULES if room(module) == "store" for text, _ in strings(module)]
    assert sum(bool(STATEMENT.match(text)) for text in inside) > 50, "and what SQL looks like is still known here"


def test_sql_has_no_numbered_parameters() -> None:
    """Python 3.12.0 to 3.12.3 warn of `?1` with a tuple."""
    inside = [module for module in MODULES if room(module) == "store"]
    assert not [place(module, line) for module in inside for text, line in strings(module) if re.search(r"\?\d", text)]


def test_units_leave_their_transaction_alone() -> None:
    found = []
    for module in set(MODULES) - BEGINS_TRANSACTIONS:
        found += [place(module, line) for text, line in strings(module) if TRANSACTION.fullmatch(text)]
        found += [place(module, line) for name, line in calls(module) if name in ENDS_TRANSACTIONS]
    assert not found


def test_nobody_awaits_single_statements() -> None:
    found = []
    for module in set(MODULES) - {"payres/core/store/lanes.py"}:
        for node in nodes(module):
            if isinstance(node, ast.Await) and called(node.value) in STATEMENT_METHODS:
                found.append(place(module, node.lineno))
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [getattr(node, "module", None) or "", *(name.name for name in node.names)]
                found += [place(module, node.lineno) for name in names if name.split(".")[0] == "aiosqlite"]
    assert not found


def test_money_moves_in_the_ledger_alone() -> None:
    others = set(MODULES) - {"payres/core/payments/ledger.py", "payres/core/store/accounts.py"}
    assert not [place(module, line) for module in others for name, line in calls(module) if name in LEDGER_WRITES]
    assert {name for name, _ in calls("payres/core/payments/ledger.py")} >= LEDGER_WRITES


def test_money_is_never_a_float() -> None:
    found = []
    for module in MODULES:
        for node in nodes(module) if module.startswith(MONEY) else ():
            literal = isinstance(node, ast.Constant) and isinstance(node.value, float | complex)
            if literal or (isinstance(node, ast.Name) and node.id in {"float", "complex"}):
                found.append(place(module, getattr(node, "lineno", 0)))
    assert not found


def test_modules_and_functions_stay_short() -> None:
    found = []
    for module in MODULES:
        length = len((ROOT / module).read_text(encoding="utf-8").splitlines())
        if length > MAX_MODULE_LINES:
            found.append(f"{module} has {length} lines")
        for node in nodes(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    found.append(f"{place(module, node.lineno)} {node.name} has {length} lines")
    assert not found
