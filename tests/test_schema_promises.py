"""What each table of schema.sql promises, held to: no table and no time without its lines, no line that the program
does not keep. What is new and says nothing fails here, with a sentence that says what to do."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from payres.core.store.migrations import schema
from payres.core.store.retention import Rule
from payres.operator.store import due_work
from payres.operator.store.restored_rights import BY_RESTORE, ENDED
from payres.operator.upkeep import restored_rights
from payres.settings import ALL_SETTINGS
from tests.helpers import ROOT
from tests.operator.upkeep.test_restored_rights import ENDED_BY_RESTORE
from tests.operator.upkeep.test_restored_rights import KINDS as RIGHTS
from tests.promises import BARE, BY, LINES, UNITS, Table, declared, limits, quantities, rules, tables, value_of
from tests.test_architecture import MODULES, TABLE, is_store, named_in, nodes

KINDS: Final = ("shown", "lasts", "due", "date", "order", "purge")
# A time column by its name; what else is called so is a number.
TIME: Final = re.compile(r"(?:^|_)(?:at|until|from|after|before|since|start)$")
NUMBERS: Final = {
    *("scale", "fee_fixed", "fee_basis_points", "balance", "held", "floor", "warn_below", "warned", "asked_above"),
    *("revision", "received", "received_before", "receive_scale", "asset_scale", "debit", "receive", "fee", "sent"),
    *("delivered", "attempts", "unresolved_debit", "unresolved_receive", "estimated", "amount", "remaining"),
    *("returned", "sequence", "cursor", "max_packet", "packets_received", "packets_sent", "repeats_answers"),
    *("source_amount", "is_private", "last_status", "number", "attempt", "milliseconds", "status", "last_step"),
    *("wrong", "faults", "sign_count", "is_backed_up", "value", "most", "first_window", "next_window", "window"),
    *("overlapped", "times", "after_event", "minimum", "refusals", "refund_limit", "upto"),
}
# How many columns the line `restore:` of each table was written for.
_COUNTED: Final = """
secret 2, asset 5, exchange_rate 5, account 8, owner 5, wallet_address 12, wallet_key 7, client 6, frozen_client 2,
client_key 5, signature_nonce 4, grant 13, interaction 11, access_token 8, authorization_revision 2,
incoming_payment 14, quote 15, outgoing_payment 27, grant_spending 7, hold 7, transfer 11, refund 12,
idempotency_key 8, event 6, audit 6, server_run 3, ledger_check 3, peer 16, peer_route 2, packet 11,
answered_request 5, rejected_request 5, checkout 15, made_elsewhere 9, remote_bill 7, webhook 16, fault 8,
wallet_event 2, webhook_turn 3, delivery 8, session 9, webhook_attempt 10, known_browser 5, password_link 4, totp 8,
recovery_code 5, passkey 13, used_challenge 2, half_sign_in 6, factor_removal 6, wallet_join 10, sign_in 7,
mail_address 10, mail_choice 3, mail 12, mail_told 4, mail_cursor 2, movement 6, operator 7, missing_rate 5,
operator_form 2, finding 2, api_key 9, standing_order 21, standing_order_run 8
"""
COLUMNS: Final = {name: int(count) for name, count in re.findall(r"(\w+) (\d+)", _COUNTED)}
# Times that last or are due and are compared with a clock by hand, each with the reason why that is right.
COMPARED: Final = {
    "operator/store/due_work.py: due_at": "a removal of a clock that was ahead is shown as one of a day",
    "agenda/store/agenda.py: again_at": "one too far ahead is tried at once",
    "core/grants/requests.py: waits_from": "a time to come makes no wait",
    "core/payments/idempotency.py: created_at": "an answer that is kept for longer pays nothing twice",
    "core/store/clients.py: expires_at": "a nonce that is kept for longer lets nothing in twice",
    "core/payments/incoming.py: expires_at": "asked for by the client",
    "core/store/incoming_payments.py: expires_at": "asked for by the client",
    "operator/store/all_payments.py: expires_at": "asked for by the client",
    "people/store/activity.py: expires_at": "asked for by the client",
    "people/activity.py: expires_at": "asked for by the client",
    "operator/api_keys.py: expires_at": "asked for by the operator",
    "accounts/guesses.py: unlocked_at": "a time to come ends no count of wrong passwords",
    "interledger/carrier.py: expires_at": "a packet's, as it says itself",
    "interledger/connector.py: expires_at": "a packet's, as it says itself",
    "interledger/receiver.py: expires_at": "a packet's, as it says itself",
    "interledger/remote_receivers.py: expires_at": "a bill's, as another server says",
    "interledger/unanswered.py: expires_at": "one too far ahead is changed",
    "interledger/oer.py: at": "a place in bytes",
    "operator/payment_history.py: last_error_at": "only shown",
    "operator/store/due_work.py: expires_at": "only shown",
    "accounts/store/mail.py: send_at": "only shown",
    "people/mail.py: created_at": "a mail from a time to come is sent",
    "webhooks/store/webhooks.py: next_at": "one too far ahead is due with its webhook, by the agenda",
    "operator/store/invariants.py: checked_at": "one to come is replaced",
    "people/standing_order_pages.py: created_at": "a quote's, with a date of the schedule",
    "people/standing_orders.py: created_at": "a quote's, with a date of the schedule",
    "accounts/store/browsers.py: expires_at": "a browser that is known for longer is only locked out by no guesses",
    "accounts/store/sign_ins.py: at": "a sign-in is shown for longer, which may be a stranger's",
    "interledger/remote_payments.py: created_at": "a payment ends by its attempts, too",
    "interledger/store/packets.py: killed_after": "what operators look at for longer",
    "operator/deliveries.py: created_at": "only shown",
    "operator/payment_history.py: created_at": "only shown",
    "people/separations.py: at": "what ends a little too much is set up again",
    "people/standing_orders.py: next_at": "a date of the schedule, which may have passed",
}
# Times of two rows, or a row's and one read before, that are compared although a clock may be set back in between.
COMPARED_TIMES: Final = {
    "invariants: excluded.checked_at >= checked_at": "a check that is stored with a time to come is replaced, too",
    "deliveries: webhook.created_at <= event.created_at": "what operators see of an event",
    "payment_history: (one.last_error_at or '') >= payment.created_at": "what operators see beside a payment",
    "standing_order_pages: run.window_at > quote.created_at": "a date of a schedule, which no clock has read",
    "standing_orders: quote.created_at < at <= work.now": "a date of a schedule, which no clock has read",
    "standing_orders: at < order.not_before": "a date of a schedule, which no clock has read",
    "grants: ORDER BY changed_at DESC": "what is shown first",
    "checkouts: ORDER BY changed_at DESC": "what is shown first",
    "retention: ORDER BY created_at DESC": "tokens that have ended, of which the last give a better answer",
    "activity: ORDER BY created_at DESC": "what is shown first",
    "mail: ORDER BY send_at DESC": "what is shown first",
    "kinds: ORDER BY expires_at DESC": "of too many known browsers, which one is forgotten",
}


def faults(text: str, all_rules: Mapping[str, Rule], kinds: Sequence[str]) -> Iterator[str]:
    """What is wrong with the lines of a text of schema.sql, a sentence each."""
    found = tables(text)
    names = {table.name for table in found}
    for table in found:
        for line in LINES:
            if not table.lines.get(line):
                yield f"{table.name}: write its line `{line}:` in schema.sql, whose head says how"
        yield from _faults_of_quantities(table)
        yield from _faults_of_rows(table, names)
        yield from _faults_of_times(table)
        yield from _faults_of_kept(table, names)
        yield from _faults_of_restore(table, kinds)
    kept = [BY.search(said) for table in found for said in table.lines.get("kept", ())]
    named = [value_of(by[1]) for by in kept if by]
    for name, rule in all_rules.items():
        if not any(rule is one for one in named):
            yield f"{rule.table}: say in `kept:` what the Rule {name} deletes, and when, with `, by {name}` at the end"
    for kind in {*kinds} - {kind for table in found for kind in _listed(table)}:
        yield f"the kind {kind} needs a table whose `restore:` says `listed and carried over as {kind}`"


def _faults_of_quantities(table: Table) -> Iterator[str]:
    for one in (one for line in LINES for said in table.lines.get(line, ()) for one in quantities(said)):
        for name, meant in zip(one.names, one.meant, strict=True):
            if meant is None:
                yield f"{table.name}: `{one.text}` names {name}, which the program does not have"
            elif meant != one.said:
                yield f"{table.name}: `{one.text}` is wrong, {name} is {meant}"


def _faults_of_rows(table: Table, names: set[str]) -> Iterator[str]:
    for said in table.lines.get("rows", ()):
        bounds = [name for one in quantities(said) for name in one.names]
        for name in bounds:
            if name not in ALL_SETTINGS and name not in limits():
                yield f"{table.name}: put {name}, which bounds its rows, in limits.py of its part"
        is_bounded = bounds or names & set(re.findall(r"for each (\w+)", said)) or said in {"operators", "one row"}
        if not (is_bounded or said.startswith("the server, ")):
            yield (
                f"{table.name}: `{said}` must name what bounds the rows: a limit, as `at most 32 (MAX_KNOWN_BROWSERS)`;"
                " `one for each TABLE`; `one row`; or `operators` alone"
            )


def _faults_of_times(table: Table) -> Iterator[str]:
    times = table.times
    for column, rest in table.integers.items():
        is_time = TIME.search(column) is not None and column not in NUMBERS
        if is_time and column not in times:
            yield (
                f"{table.name}.{column}: say in `times:` what this time decides: nothing (`{column} shown`), how long"
                " something lasts (`lasts 10 minutes (SET_UP)`), when it is due (`due, at most 1 day (PAUSES) ahead`)"
            )
        elif not (is_time or column in NUMBERS or "key" in rest or "references" in rest or column.endswith("_id")):
            yield (
                f"{table.name}.{column}: is it a time? Then call it {column}_at, and say its kind in `times:`. If not,"
                " it belongs to NUMBERS in tests/test_schema_promises.py"
            )
    for column, (kind, more) in times.items():
        if column not in table.integers:
            yield f"{table.name}: `times:` names {column}, which is no integer column"
        if kind not in KINDS:
            yield f"{table.name}.{column}: `{kind}` is no kind of time; the kinds are {', '.join(KINDS)}"
        if kind == "order" and table.name in money():
            yield f"{table.name}.{column}: where money is, order never comes from times: use what only rises, as an id"
        is_limited = any(quantities(more)) or more.startswith((" as asked", " as long as ", " on a date"))
        if kind in {"lasts", "due"} and not is_limited:
            yield f"{table.name}.{column}: say {'how long it lasts' if kind == 'lasts' else 'how far ahead it can be'}"


def _faults_of_kept(table: Table, names: set[str]) -> Iterator[str]:
    for said in table.lines.get("kept", ()):
        by = BY.search(said)
        rule = value_of(by[1]) if by else None
        is_with = {*re.findall(r"with (\w+)$", said)} & names or re.search(r"(^|: )for good(,|$)", said)
        if rule is None and not is_with:
            yield f"{table.name}: `kept: {said}` must say `for good`, or end with what deletes the rows: `, by RULE`"
        if isinstance(rule, Rule) and rule.table.strip('"') != table.name:
            yield f"{table.name}: `kept: {said}` names a Rule of the table {rule.table}"
        if isinstance(rule, Rule):
            periods = [int(one[1]) * UNITS[one[2]] for one in BARE.finditer(said)]
            if periods != [rule.after] * bool(rule.after):
                yield f"{table.name}: `kept: {said}` must say when its Rule deletes, {rule.after} us after {rule.time}"


def _listed(table: Table) -> Sequence[str]:
    return re.findall(r"\blisted and carried over as (\w+)", "\n".join(table.lines.get("restore", ())))


def _faults_of_restore(table: Table, kinds: Sequence[str]) -> Iterator[str]:
    if len(table.columns) != COLUMNS.get(table.name):
        yield (
            f"{table.name}: does a copy bring back something that its columns {', '.join(table.columns)} have ended or"
            " protected since? Say so in `restore:`, then count them in COLUMNS of tests/test_schema_promises.py"
        )
    said = table.lines.get("restore", ())
    for one in said:
        if not re.fullmatch(r"nothing, because .+|listed and carried over as \w+|ended by restore: .+", one):
            yield (
                f"{table.name}: `restore: {one}` must be `nothing, because ...`, `listed and carried over as KIND`, or"
                " `ended by restore: WHAT`"
            )
    ends = any(one.startswith("ended by restore: ") for one in said)
    if not ends == (table.name in BY_RESTORE) == (table.name in ENDED_BY_RESTORE):
        yield f"{table.name}: what a restore ends is in BY_RESTORE, has a case, and is said in `restore:`"
    for kind in _listed(table):
        query = ENDED.get(kind, "").replace('"', "")
        needed = {
            f"a query of main.{table.name} in operator/store/restored_rights.py": f"main.{table.name} " in query,
            "its end in operator/upkeep/restored_rights.py": kind in restored_rights.KINDS,
            "a case in tests/operator/upkeep/test_restored_rights.py, which restores and looks": kind in RIGHTS,
        }
        yield from (f"{table.name}: `{kind}` needs {what}" for what, is_there in needed.items() if not is_there)


def money() -> set[str]:
    """The tables that money is in, and those that refer to them."""
    inner = {"account", "transfer", "incoming_payment", "outgoing_payment"}
    return inner | {table.name for table in tables() if inner & set(table.refers)}


def test_each_table_says_what_it_promises_and_the_program_keeps_it() -> None:
    found = [*faults(schema(), rules(), [*ENDED])]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        (
            "-- ==== Webhooks",
            "create table note (\n  a text\n) strict;\n--",
            "note: write its line `rows:` in schema.sql",
        ),
        (
            "  made_by text ref",
            "  ends_at integer,\n  made_by text ref",
            "api_key.ends_at: say in `times:` what this time",
        ),
        ("  made_by text ref", "  pause integer,\n  made_by text ref", "api_key.pause: is it a time? Then call it"),
        ("used_at purge", "used_at purge; ended_at shown", "operator_form: `times:` names ended_at, which is no"),
        ("used_at purge", "used_at never", "operator_form.used_at: `never` is no kind of time; the kinds are shown,"),
        ("used_at purge", "used_at lasts", "operator_form.used_at: say how long it lasts"),
        (
            " due, at most 5 minutes (checkouts.LONGEST_PAUSE)",
            " due, soon",
            "checkout.due_at: say how far ahead it can be",
        ),
        ("changed_at shown;", "changed_at order;", "checkout.changed_at: where money is, order never comes from times"),
        ("after 24 hours, by", "after 23 hours, by", "idempotency_key: `kept: answers under an `Idempotency-Key`"),
        ("after 1 day, by FORMS", "after 1 day", "operator_form: `kept: the ids of forms that operators have sent"),
        ("after 1 day, by FORMS", "after 1 day, by SIGN_INS", "say in `kept:` what the Rule used_forms.FORMS deletes"),
        ("30 days (DECIDED_GRANT)", "31 days (DECIDED_GRANT)", "grant: `31 days (DECIDED_GRANT)` is wrong"),
        ("16 (MAX_WEBHOOKS)", "16 (MAX_HOOKS)", "webhook: `16 (MAX_HOOKS)` names MAX_HOOKS, which the program does"),
        ("16 (MAX_WEBHOOKS)", "64 (deliveries.SENT_AT_ONCE)", "webhook: put deliveries.SENT_AT_ONCE, which bounds its"),
        ("16 (MAX_WEBHOOKS)", "some", "webhook: `operators, at most some` must name what bounds the rows"),
        ("nothing, because secrets do not end", "nothing", "secret: `restore: nothing` must be `nothing, because"),
        ("ended by restore: all sessions", "nothing, because", "session: what a restore ends is in BY_RESTORE, has"),
        ("create table client (\n", "create table client (\n  frozen text,\n", "client: does a copy bring back"),
        ("over as apiKey", "over as apiKeys", "the kind apiKey needs a table whose `restore:` says"),
        ("over as apiKey", "over as apiKeys", "api_key: `apiKeys` needs a case in tests/operator/upkeep/test_rest"),
    ],
)
def test_what_is_new_and_says_nothing_is_found(was: str, becomes: str, says: str) -> None:
    text = schema().replace(was, becomes)
    assert text != schema()
    assert [one for one in faults(text, rules(), [*ENDED]) if says in one]


def test_new_rule_and_new_kind_of_right_need_a_table() -> None:
    new = {"forms.NEW": Rule("operator_form", "used_at", "id")}
    assert [*faults(schema(), {**rules(), **new}, [*ENDED, "frozen"])] == [
        "operator_form: say in `kept:` what the Rule forms.NEW deletes, and when, with `, by forms.NEW` at the end",
        "the kind frozen needs a table whose `restore:` says `listed and carried over as frozen`",
    ]


def test_what_is_kept_for_good_is_never_deleted() -> None:
    stored = [*(ROOT / one for one in MODULES if is_store(one)), *(ROOT / "payres").glob("*/store/*.sql")]
    sources = "".join(one.read_text(encoding="utf-8") for one in stored)
    deleted = {*re.findall(r'DELETE FROM "?(\w+)', sources)}
    for module in MODULES:
        for name in re.findall(r"\b((?:\w+\.)?[A-Z_]+)\.delete\b", (ROOT / module).read_text(encoding="utf-8")):
            deleted.add(eval(name, vars(import_module(module.removesuffix(".py").replace("/", ".")))).table.strip('"'))
    for_good = {table.name for table in tables() if not any(map(BY.search, table.lines["kept"]))}
    assert not deleted & for_good, "say in `kept:` of schema.sql how long, and what deletes the rows"


# What is due outside the agenda, and what looks at it.
DUE_ELSEWHERE: Final = {
    ("delivery", "next_at"): "the sender of the operator's webhooks, and through webhook.due_at of owners'",
    ("incoming_payment", "untold_at"): "the worker that writes events of payments that have expired",
    ("factor_removal", "due_at"): "whoever signs in",
    ("fault", "again_at"): "the agenda itself",
}


def test_due_work_is_of_a_kind_that_puts_off_no_further_than_its_table_says() -> None:
    said = {(one.name, column): about for one in tables() for column, about in one.times.items() if about[0] == "due"}
    kinds = {(one.table, one.due): one for one in declared("DueKind").values()}
    for place, kind in kinds.items():
        ahead = [one.said for one in quantities(said.get(place, ("", ""))[1])]
        assert ahead == [kind.longest] * bool(kind.longest), f"{place}: `due` in schema.sql must say {kind.longest} us"
    alone = {*said} - {*kinds}
    assert alone == {*DUE_ELSEWHERE}, f"{alone ^ {*DUE_ELSEWHERE}}: declare a DueKind, or say here who looks at it"
    told = {one.kind for one in due_work.DUE_KINDS.values()}
    assert told == {*declared("DueKind").values()}, "operators see what waits of each kind: operator/store/due_work.py"


def texts(module: str) -> Iterator[str]:
    """The strings of a module, with `?` for what is formatted in, and the statements in the file of SQL of its name."""
    if (ROOT / module).with_suffix(".sql").is_file():
        yield from (ROOT / module).with_suffix(".sql").read_text(encoding="utf-8").split("\n\n")
    for node in nodes(module):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "?" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def compared(module: str, kinds: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """The columns that last or are due, and that a module compares by hand, in SQL or in Python."""
    guarded = {"lasts", "due"}
    column = rf"(?:\w+\.)?\b({'|'.join(kinds)})\b"
    in_sql = re.compile(rf"{column}(?: [+-] \S+)?\)* *(?:[<>]=?|BETWEEN)|[<>]=? *{column}")
    for text in texts(module):
        for found in in_sql.finditer(text):
            name = found[1] or found[2]
            named = {*TABLE.findall(text)} & kinds[name].keys() or named_in(ROOT / module) & kinds[name].keys()
            yield from [name] if guarded & {kinds[name][table] for table in named} else []
    for node in nodes(module):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            for part in ast.walk(node):
                is_own = isinstance(part, ast.Name) and "shown" not in kinds.get(part.id, {}).values()
                name = (
                    part.attr
                    if isinstance(part, ast.Attribute)
                    else part.id
                    if isinstance(part, ast.Name) and is_own
                    else ""
                )
                yield from [name] if guarded & {*kinds.get(name, {}).values()} else []


def test_what_lasts_or_is_due_is_compared_with_a_clock_by_functions_of_the_clock() -> None:
    """What is stored while the clock is ahead would last, or wait, until that time."""
    kinds: dict[str, dict[str, str]] = {}
    for table in tables():
        for column, (kind, _) in table.times.items():
            kinds.setdefault(column, {})[table.name] = kind
    found = {f"{one.removeprefix('payres/')}: {name}" for one in MODULES for name in compared(one, kinds)}
    by_hand = sorted(found - COMPARED.keys())
    says = "use lasts or is_due of clock.py, lasting of rows.py, or declare a DueKind; or say in COMPARED why not"
    assert not by_hand, f"{', '.join(by_hand)}: {says}"
    assert COMPARED.keys() == found, "what is not compared by hand any more is not said any more"


def test_order_is_not_taken_from_two_times() -> None:
    """What rises alone gives order: a sequence, a row's number, a mark that is set when something happens."""
    times = {column for table in tables() for column in table.times}
    time = rf"(?:\w+\.)?\b(?:{'|'.join(times)})\b"
    in_sql = re.compile(rf"{time} *(?:[<>]=?|BETWEEN) *{time}|ORDER BY {time} DESC")
    invariants = [(path.stem, path.read_text(encoding="utf-8")) for path in (ROOT / "payres").glob("*/store/*.sql")]
    stored = [(Path(module).stem, text) for module in MODULES if is_store(module) for text in texts(module)]
    found = {f"{name}: {match}" for name, text in (*invariants, *stored) for match in in_sql.findall(text)}
    for module in MODULES:
        for node in nodes(module):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                read = [
                    any(getattr(part, "attr", getattr(part, "id", "")) in times for part in ast.walk(side))
                    for side in (node.left, *node.comparators)
                ]
                found |= {f"{Path(module).stem}: {ast.unparse(node)}"} if sum(read) > 1 else set()
    by_time = sorted(found - COMPARED_TIMES.keys())
    assert not by_time, "take order from what only rises, as a sequence; or say in COMPARED_TIMES why not"
    assert found == COMPARED_TIMES.keys(), "what is not compared any more is not said any more"
