"""The services of the operator's part, which its requests find in the context."""

import asyncio
from collections.abc import Hashable
from typing import Any

import msgspec
from msgspec import field

from payres.accounts.guesses import SignInGuard
from payres.core.http.context import Context
from payres.core.process.bounded_mapping import Newest
from payres.core.process.slots import Slots
from payres.operator.admin_hosts import AdminHosts
from payres.operator.declared.long_work import LongWorks
from payres.operator.limits import MAX_EXPORTS, MAX_EXPORTS_OF_CALLER
from payres.operator.upkeep.daily_volume import DailyVolume
from payres.operator.upkeep.doctor import OtherFindings
from payres.operator.upkeep.readiness import Readiness


class OperatorServices(msgspec.Struct, frozen=True):
    hosts: AdminHosts
    readiness: Readiness
    sign_in: SignInGuard
    long_works: LongWorks
    volume: DailyVolume = field(default_factory=DailyVolume)
    others: OtherFindings = field(default_factory=OtherFindings)
    # Reads of events, shared by streams at the same position.
    event_reads: dict[Hashable, asyncio.Future[tuple[int, bytes, bool]]] = field(default_factory=dict)
    # By session, what a form has done and the next page says.
    said: Newest[str, Any] = field(default_factory=lambda: Newest(1000))
    # For exports in progress, per API key or operator.
    export_slots: Slots = field(default_factory=lambda: Slots(MAX_EXPORTS, MAX_EXPORTS_OF_CALLER))


def operator_of(context: Context) -> OperatorServices:
    return context.part(OperatorServices)
