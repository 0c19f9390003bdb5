"""The map of the code, held to: which room may use which, where SQL and transactions live, and how long things get."""

import ast
import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from payres.core.protocol.errors import kinds_of_errors
from tests.helpers import ROOT

MODULES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "payres").rglob("*.py"))
MAX_MODULE_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_CORE_LINES = 13_800
# What two modules may call the same.
SHARED_NAMES = {
    "Asset": "the operator's API names its schema so",
    "GrantSpending": "the operator's API names its schema so",
    "PublicKey": "both documents name a schema so",
    "warn_of_low": "the same, with and without peers",
    "Page": "a page of a list, and the handlers of pages",
}

# Test files that are named for no module of their room, and why.
ACROSS = {
    "cli/test_help": "the help of all commands",
    "cli/test_mail": "a test mail, whose operation stands in `operator`",
    "cli/test_texts_of_others": "what all commands print of others",
    "client/test_client": "the whole client, against real servers and made up ones",
    "client/test_examples": "the programs of docs/integrating.md",
    "core/http/test_repeated_requests": "the table of all operations in docs/integrating.md",
    "core/http/test_sdk_shapes": "the whole of Open Payments, as official clients ask for it",
    "core/store/test_query_plans": "the statements of every store",
    "core/store/test_units_twice": "the units of every room",
    "interledger/test_moved_wallet": "a wallet address, from server to server",
    "interledger/test_two_servers": "all of the node, on both sides of a link",
    "openapi/test_deviations": "answers of all endpoints, held against the published documents",
    "openapi/test_schemathesis": "requests of all endpoints, made from the published documents",
    "people/test_bounds": "the rows of every form and notice",
    "people/test_fresh_factors": "the second factor in every form of owners",
    "webhooks/test_outbox": "the events of every room",
}
# Where the modules without a test file of their name are tested; those of stores, by the modules that use them.
TESTED_IN = {
    "accounts/test_cookies": "html/cookies",
    "accounts/test_factor_pages": (
        "accounts/asking accounts/totp accounts/password_links accounts/recovery_codes accounts/visits"
    ),
    "accounts/test_guesses": "accounts/places accounts/sign_in",
    "cli/test_help": "cli/commands",
    "cli/test_mail": "operator/mail",
    "cli/test_operations_peer_unresolved": "operator/unresolved_packets",
    "cli/test_server": "cli/options",
    "client/test_client": "client/access client/grants client/attempts client/methods",
    "core/grants/test_requests": "core/grants/access core/protocol/gnap",
    "core/http/test_authorize_ended_rights": "core/grants/clients core/http/context",
    "core/http/test_protocol": "core/http/server",
    "core/http/test_routing": "people/late_imports",
    "core/payments/test_outgoing": "core/payments/settlement",
    "core/process/test_settings": "accounts/settings interledger/settings operator/settings settings",
    "html/test_brand": "html/settings",
    "html/test_language": "html/forms html/part html/preferences",
    "html/test_language_amounts": "html/typed_amounts",
    "interledger/sending/test_payment": "interledger/sending/connection interledger/sending/timing",
    "interledger/test_connector": "interledger/receiver",
    "interledger/test_remote_payments": "interledger/quoting interledger/overpayment",
    "interledger/test_two_servers": "core/payments/remote interledger/node testing/peering",
    "openapi/test_resources": "openapi/documents openapi/part",
    "operator/declared/test_api": "operator/declared/shapes",
    "operator/declared/test_declarations": ("operator/declared/nouns operator/keys operator/webhooks"),
    "operator/pages/test_operations": "operator/pages/changed operator/pages/fields",
    "operator/pages/test_operations_looked_over": "operator/declared/look_overs operator/pages/repeated",
    "operator/pages/test_serving": "operator/audit operator/pages/details operator/pages/lists operator/pages/overview",
    "operator/test_due_work": "operator/standing_orders",
    "operator/test_exports_streamed": "html/exports html/streams",
    "operator/test_movements": "operator/ledger",
    "operator/test_refunds": "people/refund_events",
    "operator/upkeep/test_doctor": "operator/upkeep/missing_rates operator/upkeep/status",
    "operator/test_backups": "operator/declared/long_work operator/services",
    "operator/upkeep/test_restored_rights": "operator/separations",
    "people/test_activity_rules": "people/statements",
    "people/test_bounds": "people/services",
    "people/test_checkout": "people/checkout_steps",
    "people/test_consent": "people/consent_requests",
    "people/test_keys": "people/key_pages",
    "people/test_mail": "accounts/mail",
    "people/test_not_me": "people/separations",
    "people/test_notice_pages": "accounts/notices html/mail_addresses",
    "people/test_own_wallets": "accounts/owners",
    "people/test_security": "accounts/browser_names",
    "people/test_sending": "people/payments",
    "people/test_sending_rules": "people/payee_lookup",
    "people/test_serving": "html/security_contact",
    "people/test_settings": "people/wallet_names",
    "specification/test_incoming_payments": "core/http/incoming_payments",
    "test_application": "accounts/part core/http/serving operator/part people/part",
    "test_limits_named": (
        "accounts/limits core/protocol/limits html/limits "
        "interledger/limits operator/limits people/limits webhooks/limits"
    ),
    "testing/test_instance": "testing/set_up",
    "testing/test_openapi": "testing/answers testing/endpoints",
    "testing/test_sandbox_process": "cli/sandbox testing/asked testing/decisions testing/request_rules",
    "webhooks/test_deliveries": (
        "operator/deliveries webhooks/attempts webhooks/patterns webhooks/rounds webhooks/rules webhooks/sender"
        " webhooks/turns"
    ),
    "webhooks/test_outbox": "core/protocol/event_types",
}
# What runs on other threads beside the event loop, and what bounds how much of it there is at a time.
THREADS = {
    "payres/accounts/passwords.py": "the slots of PasswordGate, with threads of its own",
    "payres/core/store/database.py": "one batch of a lane at a time, on the lane's own thread",
    "payres/operator/declared/api.py": "the document, which is cached",
    "payres/accounts/mail.py": "one mail at a time, on a thread of its own",
    "payres/core/http/routing.py": "imports, under a lock",
    "payres/openapi/part.py": "the document, which is cached",
    "payres/operator/upkeep/backup_schedule.py": "one backup at a time",
    "payres/operator/backups.py": "one backup at a time, under a slot",
    "payres/operator/mail.py": "a test mail for each operator who sends one",
    "payres/operator/upkeep/health.py": "one look at a time, and a few requests at a time",
    "payres/operator/upkeep/monitoring.py": "milliseconds for each answer of /metrics, to permitted hosts",
    "payres/testing/control.py": "the document, which is cached",
    "payres/testing/sandbox.py": "one reset at a time, under a lock",
    "payres/core/remote/ip_addresses.py": "the slots of Lookups",
    "payres/client/calls.py": "a lookup for each new connection of a client for threads, which the server is not",
}
# From the ground up: a module imports from its own room and from those above it in this list.
CORE = ("protocol", "signatures", "process", "store", "remote", "grants", "payments", "http")
PARTS = ("client", "openapi", "agenda", "interledger", "webhooks", "html", "accounts", "people", "operator")
# These put the parts together.
ENTRANCES = ("settings", "application", "testing", "cli", "__main__")
ROOMS = (*(f"core.{room}" for room in CORE), *PARTS, *ENTRANCES)
# The client runs in the programs of others.
OF_CLIENT = {"core.protocol", "core.signatures"}
BEGINS_TRANSACTIONS = {
    *(
        "payres/cli/session.py",
        "payres/core/store/connections.py",
        "payres/core/store/copies.py",
        "payres/core/store/database.py",
    ),
    "payres/core/store/transactions.py",
    "payres/core/store/migrations/__init__.py",
}
MONEY = (
    *("payres/core/protocol/amounts.py", "payres/core/payments/", "payres/core/store/"),
    *("payres/interledger/clearing.py", "payres/interledger/store/"),
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
CLAUSE = re.compile(r"\b(?:WHERE|ORDER BY|LIMIT|NOTNULL|NOT NULL)\b|(?:\w|\)) (?:[=<>]+|IS|IN|LIKE) \(?\?")
# The headings in schema.sql, and whose tables they head.
HEADINGS = {
    "The core": "core",
    "The agenda": "agenda",
    "Interledger": "interledger",
    "Webhooks": "webhooks",
    "Accounts": "accounts",
    "People": "people",
    "Operators": "operator",
}
CREATED = re.compile(r'^create table "?(\w+)', re.MULTILINE)
# A table in a statement, which has its keywords in capitals, and in the head of invariants.sql.
TABLE = re.compile(r"(?:\b(?:FROM|JOIN|INTO|UPDATE)|-- rows: [\w ]+ =)\s+\"?(\w+)")
# In docstrings and comments: files and folders, and modules with what is in them. Addresses are neither.
PROSE = re.compile(r'"""(.*?)"""|(?:^|[ \t])# ([^\n]+)', re.MULTILINE | re.DOTALL)
ADDRESS = re.compile(r"\S+://\S+")
PATH = re.compile(r"(?<![\w./:@<{-])(?:[\w-]+/)*[\w.-]+")
ENDINGS = (".py", ".sql", ".md", ".html", ".css", ".mjs")
DOTTED = re.compile(r"(?<![\w./@-])[a-z_]+(?:\.\w+)+")
TRANSACTION = re.compile(r"\s*(begin|commit|rollback|savepoint|release)(\s+(to\s+)?\w+)?\s*", re.IGNORECASE)


@cache
def tree(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"), module)


@cache
def nodes(module: str) -> tuple[ast.AST, ...]:
    """All of a module's tree, which is walked again and again."""
    return tuple(ast.walk(tree(module)))


def room_of(name: str) -> str:
    """The room of a dotted name under payres; nothing for the packages of the rooms themselves."""
    _, part, room, *_ = [*name.split("."), "", ""]
    return f"core.{room}" if part == "core" else part


def room(module: str) -> str:
    return room_of(module.removesuffix(".py").replace("/", ".").removesuffix(".__init__"))


def is_store(module: str) -> bool:
    return "/store/" in module


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
    parts |= {id(node.value) for node in nodes(module) if isinstance(node, ast.Expr)}
    for node in nodes(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value, node.lineno


def lines_of_sql(found: Iterable[ast.AST]) -> Iterator[int]:
    """Where statements, or clauses of them, are written; values of formatted ones count as `x`. No docstrings."""
    found = [*found]
    parts = {id(part) for node in found if isinstance(node, ast.JoinedStr) for part in node.values}
    parts |= {id(node.value) for node in found if isinstance(node, ast.Expr)}
    for node in found:
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in parts:
            pieces = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(str(getattr(one, "value", "x")) if isinstance(one, ast.Constant) else "x" for one in pieces)
            if STATEMENT.match(text) or CLAUSE.search(text):
                yield node.lineno


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
    outside = {"payres/__init__.py", "payres/core/__init__.py"}
    assert {module for module in MODULES if room(module) not in ROOMS} == outside


def test_each_test_file_of_a_room_is_named_for_a_module_of_it_and_each_module_has_one() -> None:
    """As test_spending_limits.py and test_spending_limits_intervals.py are for limits.py."""
    names = {module.removeprefix("payres/").removesuffix(".py").removesuffix("/__init__") for module in MODULES}
    folders, modules = {name for name in names if (ROOT / "payres" / name).is_dir()}, set(names)
    modules -= {"__init__", "__main__", *folders} - {"core/store/migrations"}
    tests = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")]
    rooms = {str(Path(name).parent) for name in modules} - {"."}
    strangers, named = set[str](), set[str]()
    for file in tests:
        words = file.stem.removeprefix("test_").split("_")
        found = {str(file.with_name("_".join(words[:last]))) for last in range(1, len(words) + 1)} & modules
        named |= found
        if not found and str(file.parent) in rooms:
            strangers.add(str(file.with_suffix("")))
    assert strangers == ACROSS.keys()
    alone = {module for module in modules - named if "/store/" not in module}
    assert {module for some in TESTED_IN.values() for module in some.split()} == alone
    assert TESTED_IN.keys() <= {str(file.with_suffix("")) for file in tests}


def test_core_imports_no_part_and_no_part_one_above_it() -> None:
    found = []
    for module in MODULES:
        here = ROOMS.index(room(module)) if room(module) in ROOMS else len(ROOMS)
        names = [(name, line) for name, line in imported(module) if name != "payres.__version__"]
        found += [f"{module}:{line} {name}" for name, line in names if ROOMS.index(room_of(name)) > here]
    assert not found


def test_client_uses_the_protocol_and_signatures_alone() -> None:
    used = {room_of(name) for module in MODULES if room(module) == "client" for name, _ in imported(module)}
    assert used - {"client", "__version__"} == OF_CLIENT


@cache
def for_types(module: str) -> set[int]:
    """The lines of imports that only a type checker makes."""
    checks = (node for node in nodes(module) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
    return {line.lineno for node in checks for line in node.body}


def test_modules_of_a_room_import_one_another_in_no_circle() -> None:
    """Also inside functions, and by their names in strings: what is imported late is imported."""
    named = {module.removesuffix(".py").removesuffix("/__init__").replace("/", "."): module for module in MODULES}
    for here in ROOMS:
        own = {name: module for name, module in named.items() if room(module) == here}
        used = {
            name: {
                *(
                    one if one in named else one.rpartition(".")[0]
                    for one, line in imported(module)
                    if line not in for_types(module)
                ),
                *(text for text, _ in strings(module) if text.count(".") > 1),  # loggers have the names of packages
            }
            & own.keys()
            for name, module in own.items()
        }
        assert len([*TopologicalSorter(used).static_order()]) == len(own)


def test_people_load_in_one_place_what_they_load_late() -> None:
    """Beside it, only the mail that is due loads how mails are written."""
    late = {
        module
        for module in MODULES
        if room(module) == "people"
        for function in nodes(module)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("payres")
    }
    assert late - {"payres/people/mail.py"} == {"payres/people/part.py"}


def test_core_is_small() -> None:
    lines = sum(
        len((ROOT / module).read_text(encoding="utf-8").splitlines()) for module in MODULES if "/core/" in module
    )
    assert lines <= MAX_CORE_LINES


def test_sentences_of_errors_name_no_commands() -> None:
    """They are also those of the API and the pages; commands add the advice."""
    kinds = {kind.__name__ for kind in kinds_of_errors()} | {"require"}
    shared = (module for module in MODULES if room(module) not in ENTRANCES)
    calls_of = ((module, node) for module in shared for node in nodes(module) if called(node) in kinds)
    assert not [
        place(module, text.lineno)
        for module, node in calls_of
        if isinstance(node, ast.Call)
        for text in ast.walk(node.args[0] if node.args else node)
        if isinstance(text, ast.Constant) and "`payres " in str(text.value)
    ]


def test_asgi_entry_uses_the_application_and_its_settings_alone() -> None:
    assert {name for name, _ in imported("app.py")} == {
        "payres.application.create_app",
        "payres.settings.load_settings",
    }


def test_what_runs_on_other_threads_is_bounded() -> None:
    """What is unbounded there keeps all others of the same pool waiting."""
    servers = [module for module in MODULES if room(module) not in {"client", *ENTRANCES} - {"testing", "client"}]
    names = {"to_thread", "run_in_executor", "run_in_threadpool", "run_sync", "Thread"}
    found = {module for module in servers for name, _ in calls(module) if name in names}
    assert found - {"payres/testing/instance.py", "payres/testing/receiver.py"} == THREADS.keys()


def test_sql_is_written_in_the_store_alone() -> None:
    outside = [module for module in MODULES if not is_store(module)]
    assert not [place(module, line) for module in outside for line in lines_of_sql(nodes(module))]
    inside = [text for module in MODULES if is_store(module) for text, _ in strings(module)]
    assert sum(bool(STATEMENT.match(text)) for text in inside) > 50, "and what SQL looks like is still known here"


@pytest.mark.parametrize(
    "planted",
    [
        'work.execute("DELETE FROM hold")',
        'KEYS.list(work, "WHERE made_by = ? ORDER BY id", key.id)',
        'RATES.list(work, "ORDER BY base_code")',
        'select_page(work, AUDIT, page, {"created_at >= ?": since})',
        'select_page(work, AUDIT, page, {f"instr({name}, ?) > 0 AND object = ?": values})',
        'select_page(work, AUDIT, page, {f"{name} = ?": value})',
    ],
)
def test_sql_outside_the_store_is_seen(planted: str) -> None:
    assert [*lines_of_sql(ast.walk(ast.parse(planted)))]


def owners_of_tables() -> dict[str, str]:
    """The core or the part that each table of schema.sql is of."""
    _, *split = re.split("^-- ==== (.+) ====$", (ROOT / "schema.sql").read_text(encoding="utf-8"), flags=re.MULTILINE)
    sections = dict(zip(split[::2], split[1::2], strict=True))
    assert list(sections) == list(HEADINGS), "in the order of the core and the parts"
    return {name: HEADINGS[one] for one, text in sections.items() for name in CREATED.findall(text)}


def named_in(path: Path) -> set[str]:
    """The tables that a module or a file of SQL names, and some other words."""
    found = {*TABLE.findall(path.read_text(encoding="utf-8"))}
    if path.suffix == ".py":  # in a text of its own, such as Table(Record, "peer"), but in no Literal["peer"]
        module = path.relative_to(ROOT).as_posix()
        types = {id(part) for node in nodes(module) if isinstance(node, ast.Subscript) for part in ast.walk(node)}
        texts = [node.value for node in nodes(module) if isinstance(node, ast.Constant) and id(node) not in types]
        found |= {text.partition(" ")[0].strip('"') for text in texts if isinstance(text, str)}
    return found


def test_sql_names_tables_of_its_own_part_and_of_parts_below_it() -> None:
    """The migrations, which are of all tables, stand in the core."""
    owners, order = owners_of_tables(), ("core", *PARTS)
    above, named = [], set[str]()
    for path in (ROOT / "payres").glob("*/store/*.*"):
        part, found = path.relative_to(ROOT).parts[1], named_in(path) & owners.keys()
        above += [f"{path} {name}" for name in found if order.index(owners[name]) > order.index(part)]
        named |= found
    assert not above
    assert named == owners.keys(), "and what names tables is still known here"


def test_sql_has_no_numbered_parameters() -> None:
    """Python 3.12.0 to 3.12.3 warn of `?1` with a tuple."""
    tests = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py") if "node_modules" not in path.parts]
    numbered = [one for one in [*filter(is_store, MODULES), *tests] if re.search(r"\?\d", (ROOT / one).read_text())]
    texts = ((module, *one) for module in numbered for one in strings(module))
    sql = ((module, text, line) for module, text, line in texts if is_store(module) or STATEMENT.match(text))
    assert not [place(module, line) for module, text, line in sql if re.search(r"\?\d", text)]


def test_units_leave_their_transaction_alone() -> None:
    found = []
    for module in set(MODULES) - BEGINS_TRANSACTIONS:
        found += [place(module, line) for text, line in strings(module) if TRANSACTION.fullmatch(text)]
        found += [place(module, line) for name, line in calls(module) if name in ENDS_TRANSACTIONS]
    assert not found


def test_nobody_awaits_single_statements() -> None:
    found = []
    for module in set(MODULES) - {"payres/core/store/database.py"}:
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


def defined(module: str) -> Iterator[tuple[str, bool]]:
    """The public names that a module defines at its top, but for variables of types, and whether they are of types."""
    for node in tree(module).body:
        names: list[ast.AST] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [ast.Name(node.name)]
        elif isinstance(node, ast.Assign | ast.AnnAssign) and called(node.value or node) not in {
            "TypeVar",
            "ParamSpec",
        }:
            names = [*node.targets] if isinstance(node, ast.Assign) else [node.target]
        for name in names:
            if isinstance(name, ast.Name) and not name.id.startswith("_"):
                yield name.id, re.fullmatch(r"[A-Z]\w*[a-z]\w*", name.id) is not None


def test_one_name_means_one_thing() -> None:
    """A type has a name of its own, and so has what other modules import by name; the rest is a module's own."""
    imports = {name for module in MODULES for name, _ in imported(module)}
    places: dict[str, list[str]] = {}
    for module in MODULES:
        if room(module) == "client" or module == "payres/testing/answers.py":
            continue  # names that apps import, and names of schemas
        dotted = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name, is_type in defined(module):
            if is_type or f"{dotted}.{name}" in imports:
                places.setdefault(name, []).append(module)
    shared = {name: found for name, found in places.items() if len(found) > 1}
    assert shared.keys() == SHARED_NAMES.keys(), shared


def test_no_two_migrations_have_one_number() -> None:
    """One of them would not be made."""
    numbers = [path.name[:4] for path in (ROOT / "payres" / "core" / "store" / "migrations").glob("*.sql")]
    assert len(numbers) == len({*numbers})


def test_files_and_modules_in_docstrings_and_comments_exist() -> None:
    """They move, and nobody reads again what speaks of them."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in names if name.endswith(".py")}
    whole = {parent for name in names for parent in (name, *map(str, Path(name).parents))}
    paths = {"/".join(Path(one).parts[first:]) for one in whole for first in range(len(Path(one).parts))}
    folders = {part for name in texts for part in Path(name).parts[:-1]}

    def is_there(name: str) -> bool:
        """Whether it is a module, or a name in one."""
        source, member = name.replace(".", "/"), name.rpartition(".")[2]
        where = source.rpartition("/")[0]
        inside = [
            text for path, text in texts.items() if f"/{path}".endswith((f"/{where}.py", f"/{where}/__init__.py"))
        ]
        return {source, f"{source}.py"} & paths != set() or any(re.search(rf"\b{member}\b", text) for text in inside)

    missing = []
    for module in [path for path in texts if path.startswith(("payres/", "tests/"))]:
        said = ADDRESS.sub("", "\n".join(one for pair in PROSE.findall(texts[module]) for one in pair))
        named = {one.strip("./") for one in PATH.findall(said) if "/" in one or one.strip(".").endswith(ENDINGS)}
        missing += [
            f"{module} {one}" for one in named - paths if one.endswith(ENDINGS) or one.partition("/")[0] in folders
        ]
        dotted = {
            one for one in DOTTED.findall(said) if module.startswith("payres/") and one.partition(".")[0] in folders
        }
        missing += [f"{module} {one}" for one in dotted - paths if not is_there(one)]
    assert not missing, "\n".join(missing)
