"""Why a signature is not fresh: clocks, time zones, and times in another unit than seconds."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from payres.signatures.base import Message, field_value, header_fields
from payres.signatures.explain.cause import Cause
from payres.signatures.parameters import Parameters, Policy

_SECOND: Final = 1_000_000
_HOUR: Final = 3600
_DAY: Final = 24 * _HOUR
_UNITS: Final = (("milliseconds", 10**3), ("microseconds", 10**6), ("nanoseconds", 10**9))
_CREATED = re.compile(r';(\s*created\s*=\s*"?([0-9]{9,11})(?:\.[0-9]+)?"?)')


def moment(seconds: int) -> str:
    """RFC 3339 of Unix seconds, or the number itself when it lies in no year that a calendar names."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s since 1970"


def time_causes(message: Message, parameters: Parameters, policy: Policy, now: int) -> Iterator[Cause]:
    """What explains a `created` that lies too far from `now` (microseconds), the most telling first."""
    created, seconds = parameters.created, now // _SECOND
    for unit, factor in _UNITS:
        if _near(created // factor, seconds, _DAY * 365) and created > seconds * 100:
            yield Cause(
                "created_unit",
                f"The created parameter is a time of this year when read as {unit} ({moment(created // factor)}),"
                f" so divide it by {factor}: it is in whole seconds.",
            )
            return
    offset = seconds - created
    hours = round(offset / _HOUR)
    if 0 < abs(hours) <= 14 and abs(offset - hours * _HOUR) <= policy.max_future_seconds:
        yield Cause(
            "time_zone",
            f"The signature is fresh when created is shifted by exactly {abs(hours)} h, so the client takes its local"
            " time for UTC; created counts from 1970-01-01T00:00:00Z.",
        )
    yield from _dated(message, created, seconds)
    if offset > policy.max_age_seconds:
        yield Cause(
            "old_capture",
            f"The signature was fresh at {moment(created)}, so if the request was sent then, look at it with"
            f" --at {moment(created)}; if it was sent just now, sign each request when it is sent.",
        )
    elif -offset > policy.max_future_seconds:
        yield Cause(
            "clock",
            f"The signature becomes fresh in {-offset - policy.max_future_seconds} s, so set the client's clock.",
        )


def unread_created(text: str) -> Iterator[Cause]:
    """What explains parameters without a readable `created`."""
    match = _CREATED.search(text)
    if match is not None and match[1].strip() != f"created={match[2]}":
        yield Cause("created_format", f"The created parameter has more to it than digits, so send created={match[2]}.")


def _dated(message: Message, created: int, seconds: int) -> Iterator[Cause]:
    """The Date header comes from the same machine as `created`, mostly, and tells two kinds of trouble apart."""
    fields = header_fields(message.headers)
    try:
        date = parsedate_to_datetime(field_value(fields[b"date"]).decode("latin-1"))
    except (KeyError, ValueError):
        return
    sent = int(date.replace(tzinfo=date.tzinfo or UTC).timestamp())
    if not _near(sent, created, 60) and _near(sent, seconds, 300):
        yield Cause(
            "signed_early",
            f"The Date header says {moment(sent)} and created says {moment(created)}, so the clock is right and the"
            " signature is old: sign again for each request, retries too.",
        )


def _near(one: int, other: int, distance: int) -> bool:
    return abs(one - other) <= distance
