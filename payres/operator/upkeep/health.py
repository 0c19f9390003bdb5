"""Health: all that `payres doctor` finds.

What the database says is looked at each time. Others, such as peers, the public address and the mail server, are asked
every few minutes in the background, and when somebody presses a button.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Literal

from payres.core.http.context import Context
from payres.core.process.worker import Worker
from payres.core.protocol.clock import format_time_if_any, times_in_words
from payres.core.protocol.errors import Unavailable
from payres.core.protocol.wire import Resource
from payres.core.remote.ip_addresses import THREADS
from payres.core.store.work import Work
from payres.operator.declared.declarations import CommandLine, ContextUnits, OperationForm, operation
from payres.operator.declared.shapes import Time, represent
from payres.operator.services import operator_of
from payres.operator.store import backups
from payres.operator.store.findings import note_wrong
from payres.operator.upkeep import doctor
from payres.operator.upkeep.doctor import BACK_UP, Diagnosis, combined

FIRST_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 300.0
HealthState = Literal["in order", "may be wrong", "wrong"]
STATES: Final[Sequence[HealthState]] = ("in order", "may be wrong", "wrong")  # by badness
PRINTED: Final = {"in order": "ok  ", "may be wrong": "WARN", "wrong": "FIX "}


class HealthFinding(Resource, frozen=True, kw_only=True):
    """What was `seen` of a subject; `fix` is null if it is in order, and `warning` says that it may be harmless. It is
    so `since` a time, null if that is not known."""

    subject: str
    state: HealthState
    seen: str
    fix: str | None
    warning: bool
    since: Time | None


class Health(Resource, frozen=True, kw_only=True):
    """It is `ok` if nothing is wrong. `lookedAt` is when others were asked: this machine, the public address, the mail
    server, peers; null if that was not done since the server started."""

    ok: bool
    looked_at: Time | None
    findings: list[HealthFinding]


def _health(found: Iterable[Diagnosis], looked_at: int | None) -> Health:
    shown = [represent(HealthFinding, one, state=STATES[one.badness]) for one in found]
    is_ok = all(one.state != "wrong" for one in shown)
    return Health(ok=is_ok, looked_at=format_time_if_any(looked_at), findings=shown)


def examine_all(work: Work, context: Context) -> Sequence[Diagnosis]:
    """All findings: of the database, of the server's own last backup, and of the last look at others. Raises
    OSError."""
    services, found = operator_of(context), [*doctor.examine(work)]
    backup = services.long_works.latest.get("backup")
    if backup and backup.problem and (backup.ended_at or 0) > (backups.last_backup(work, work.now) or 0):
        fix, seen = "Put that right, then make one: `payres backup`", f"the last backup failed: {backup.problem}"
        found.append(Diagnosis("failed backup", seen, fix, page=BACK_UP, since=backup.ended_at))
    return combined(found, services.others.found)


def count_wrong(states: Sequence[str]) -> str:
    """Such as `3 things are wrong, 2 may be`; "" if all is in order."""
    wrong, unsure = states.count("wrong"), states.count("may be wrong")
    if not wrong:
        return f"{unsure} thing{'s' * (unsure > 1)} may be wrong" if unsure else ""
    return f"{wrong} thing{' is' if wrong == 1 else 's are'} wrong" + (f", {unsure} may be" if unsure else "")


@operation("GET /health status:read", noun="health")
async def show_health(call: ContextUnits) -> Health:
    """Read what is wrong with the server, and how to fix it, as `payres doctor` prints it.

    Others are asked every five minutes, and by `POST /health/looks`.
    """
    found = await call.read(partial(examine_all, context=call.context))
    return _health(found, operator_of(call.context).others.looked_at)


def _printed(found: Health) -> str:
    lines = ((f"{PRINTED[one.state]} {one.subject}: {one.seen}", one.fix) for one in found.findings)
    return times_in_words("\n".join(line + (f"\n     {fix}" if fix else "") for line, fix in lines))


@operation(
    "POST /health/looks status:read",
    command=CommandLine(
        "doctor",
        text=_printed,
        failure=lambda found: None if found.ok else count_wrong([one.state for one in found.findings]),
    ),
    form=OperationForm("Look now", path="/health/look", back="/health", done="It is looking", begins="look"),
    noun="health",
)
async def look(call: ContextUnits) -> Health:
    """Look at the server now, and ask others.

    It checks the files, the money and the links in the database, the server on this machine, and its public address as
    clients see it: TLS, redirects, the clock; and whether the mail server and the servers of peers answer.

    The exit code is 1 if something should be fixed (FIX); warnings (WARN) leave it at 0.
    """
    if isinstance(call.context, Context):
        actor, works = await call.read(lambda work: work.actor), operator_of(call.context).long_works
        await works.run("look", actor, lambda _: ask_others(call.context))
        return await show_health(call)
    found, others, now = await call.read(lambda work: (doctor.examine(work), doctor.others(work), work.now))
    return _health(combined(found, doctor.ask(others)), now)  # of a command


async def ask_others(context: Context) -> float:
    """Asks others, and keeps what they say; returns the seconds until the next time."""
    looks = await context.database.read(doctor.others)
    found = await asyncio.get_running_loop().run_in_executor(THREADS, doctor.ask, looks)
    now, wrong, stored = context.clock.now(), [one.subject for one in found if one.fix], dict[str, int]()
    with suppress(Unavailable):  # of a standby, or a server that stores nothing any more
        stored |= await context.database.write(partial(note_wrong, subjects=wrong, now=now))
    operator_of(context).others.note(found, now, stored)
    return LOOK_SECONDS


async def keep_looking(context: Context) -> None:
    """Asks others again and again, until the database is in fail-stop; not before the server serves and is known."""
    await asyncio.sleep(FIRST_SECONDS)
    step = partial(ask_others, context)
    await Worker("the look at others", context.database, step, LOOK_SECONDS, is_timed=False).run()
