"""A row of the specification's table: which rules a request keeps or breaks, and what the answer then is."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
import pytest

from tests.helpers import refusal
from tests.specification.driver import Driver
from tests.specification.shapes import Shape

Send = Callable[[Driver], httpx2.Response]
ABSENT: Final = object()


@dataclass(frozen=True)
class Row:
    """`send` makes the request, and what must come before it. Places in the answer are paths such as `result.0.id`."""

    rules: tuple[str, ...]
    name: str
    keeps: bool
    send: Send
    status: int
    code: str | None = None
    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)


def keeps(
    rules: str,
    name: str,
    send: Send,
    status: int,
    *,
    present: str = "",
    absent: str = "",
    values: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Shape] | None = None,
) -> Row:
    """A request that keeps the rules (numbers apart by spaces) and is answered with `status`.

    Each of `values` must be equal, with `{base}` for the base URL, or match as a whole when it is a compiled pattern.
    """
    return Row(
        tuple(rules.split()),
        name,
        True,
        send,
        status,
        None,
        tuple(present.split()),
        tuple(absent.split()),
        values or {},
        shapes or {},
    )


def breaks(
    rules: str, name: str, send: Send, answer: str, *, values: Mapping[str, Any] | None = None, present: str = ""
) -> Row:
    """A request that breaks the rules and is refused. `answer` is the status and the code, with the reason or the field
    if it has one: "401 invalid_token revoked_token", "400 invalid_request field=walletAddress"."""
    status, code, *more = answer.split()
    details = [detail.rpartition("=") for detail in more]
    told = {f"error.details.{member or 'reason'}": value for member, _, value in details} | dict(values or {})
    return Row(tuple(rules.split()), name, False, send, int(status), code, tuple(present.split()), (), told)


def table(rows: Sequence[Row]) -> pytest.MarkDecorator:
    """Runs a test for each row, named after the rules it is about."""
    names = [f"{' '.join(row.rules)} {'keeps' if row.keeps else 'breaks'}: {row.name}" for row in rows]
    assert len(set(names)) == len(names), "two rows say the same"
    return pytest.mark.parametrize("row", rows, ids=names)


def play(driver: Driver, row: Row) -> None:
    """Sends what the row says and checks the answer against it."""
    answer = row.send(driver)
    assert answer.status_code == row.status, answer.text
    body: Any = answer.json() if answer.content else None
    if row.code is not None:
        refusal(answer, row.status, row.code)
    elif row.status == 201:
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "no-store"
    for place in row.present:
        assert look(body, place) is not ABSENT, f"{place} is missing from {answer.text}"
    for place in row.absent:
        assert look(body, place) is ABSENT, f"{place} is in {answer.text}"
    for place, expected in row.values.items():
        _check_value(driver, place, look(body, place), expected)
    for place, shape in row.shapes.items():
        shape.check(look(body, place))


def look(body: Any, place: str) -> Any:
    """What is at a path such as `result.0.id`, the whole body at the empty one, or ABSENT."""
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
        assert isinstance(found, str), place
        assert expected.fullmatch(found), f"{place} is {found}"
        return
    wanted = expected.replace("{base}", driver.instance.base_url) if isinstance(expected, str) else expected
    assert (type(found), found) == (type(wanted), wanted), f"{place} is {found!r}"
