"""A row of the specification's table: which rules a request keeps or breaks, and what the answer then is."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec

import httpx2
import pytest

from tests.helpers import refusal
from tests.specification.driver import Driver

P = ParamSpec("P")
Values = Mapping[str, Any]
Members = Mapping[str, str]
ABSENT: Final = object()
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
MAX_NAME: Final = 120


class Send(NamedTuple):
    """A request, and what must come before it; `name` is how a row writes it."""

    name: str
    run: Callable[[Driver], httpx2.Response]


def sender(make: Callable[Concatenate[Driver, P], httpx2.Response]) -> Callable[P, Send]:
    """Turns a function that sends into one for rows, which give it all but the driver."""

    def send(*arguments: P.args, **members: P.kwargs) -> Send:
        shown = ", ".join([*map(repr, arguments), *(f"{name}={value!r}" for name, value in members.items())])
        return Send(f"{make.__name__}({shown})"[:MAX_NAME], lambda driver: make(driver, *arguments, **members))

    return send


class Row(NamedTuple):
    """`code` is that of the error, if any. Places in the answer are paths such as `result.0.id`, "" is all of it."""

    rules: Sequence[str]
    send: Send
    status: int
    code: str | None
    values: Values
    members: Members


def keeps(rules: str, send: Send, status: int, values: Values | None = None, members: Members | None = None) -> Row:
    """A request that keeps the rules (numbers apart by spaces) and is answered with `status`.

    Each of `values` is the value at a place, with `{base}` for the base URL; or a compiled pattern that matches all of
    it, its type, or ABSENT. `members` are the names that the object there has, or each in the list there, and no
    others; those with a question mark may be missing.
    """
    return Row(rules.split(), send, status, None, values or {}, members or {})


def breaks(rules: str, send: Send, answer: str, values: Values | None = None) -> Row:
    """A request that breaks the rules and is refused. `answer` is the status and the code, with the reason or the field
    if it has one: "401 invalid_token revoked_token", "400 invalid_request field=walletAddress"."""
    status, code, *more = answer.split()
    details = [detail.rpartition("=") for detail in more]
    told = {f"error.details.{member or 'reason'}": value for member, _, value in details}
    return Row(rules.split(), send, int(status), code, {**told, **(values or {})}, {})


def table(rows: Sequence[Row]) -> pytest.MarkDecorator:
    """Runs a test for each row, named after the rules it is about."""
    names = [f"{' '.join(row.rules)} {'breaks' if row.code else 'keeps'}: {row.send.name}" for row in rows]
    return pytest.mark.parametrize("row", rows, ids=names)


def play(driver: Driver, row: Row) -> None:
    """Sends what the row says and checks the answer against it."""
    answer = row.send.run(driver)
    assert answer.status_code == row.status, answer.text
    body: Any = answer.json() if answer.content else None
    if row.code is not None:
        refusal(answer, row.status, row.code)
    elif row.status == 201:
        assert answer.headers["cache-control"] == "no-store"
    for place, expected in row.values.items():
        _check_value(driver, place, _look(body, place), expected)
    for place, names in row.members.items():
        _check_members(_look(body, place), names)


def _look(body: Any, place: str) -> Any:
    for name in filter(None, place.split(".")):
        if isinstance(body, list) and name.isdigit() and int(name) < len(body):
            body = body[int(name)]
        elif isinstance(body, dict) and name in body:
            body = body[name]
        else:
            return ABSENT
    return body


def _check_value(driver: Driver, place: str, found: Any, expected: Any) -> None:
    if isinstance(expected, re.Pattern):
        assert expected.fullmatch(found), f"{place} is {found!r}"
    elif isinstance(expected, type):
        assert type(found) is expected, f"{place} is {found!r}"
    else:
        wanted = expected.replace("{base}", driver.instance.base_url) if isinstance(expected, str) else expected
        assert (type(found), found) == (type(wanted), wanted), f"{place} is {found!r}"


def _check_members(found: Any, names: str) -> None:
    """Only the names, and how times are written: of what type the values are is in the OpenAPI documents, to which all
    answers are held (tests/openapi/conformance.py)."""
    items = found if isinstance(found, list) else [found]
    assert items, "an empty list proves nothing"
    for item in items:
        assert {name for name in names.split() if not name.endswith("?")} <= item.keys(), item
        assert item.keys() <= set(names.replace("?", "").split()), item
        assert all(TIME.fullmatch(value) for name, value in item.items() if name.endswith("At")), item
