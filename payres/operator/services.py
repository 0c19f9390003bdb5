"""Access to the operator's API: only from this machine, unless the setting `admin_hosts` allows more.

To everyone else the API does not exist. A request must pass two checks:

- Its source address. A proxy on this machine must not expose the API to its clients: a forwarded request does not count
  as local, whatever address it names, and passes only by an address or network in the setting.
- Its host name, so that a page in the operator's browser cannot reach the API by a name that resolves to this
  machine (DNS rebinding).
"""

import asyncio
import ipaddress
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import field
from starlette.types import Scope

from payres.core.http.context import Context
from payres.core.process.slots import Slots
from payres.core.protocol.errors import DomainError
from payres.core.protocol.limits import MAX_EXPORTS, MAX_EXPORTS_OF_CALLER, MIN_FREE_BYTES
from payres.core.protocol.urls import is_loopback
from payres.core.store.connections import free_bytes
from payres.core.store.database import Database
from payres.core.store.transactions import touch
from payres.html.sign_in import SignInGuard
from payres.operator.long_work import LongWorks
from payres.operator.volume import DailyVolume

# Headers of proxies, any of which shows that a request was forwarded.
FORWARDED: Final = frozenset(
    {b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip"}
)


class AdminHosts:
    """The setting: comma-separated addresses, networks and host names."""

    def __init__(self, setting: str) -> None:
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        self._names: set[str] = set()
        for host in filter(None, setting.split(",")):
            try:
                self._networks.append(ipaddress.ip_network(host))
            except ValueError:
                self._names.add(host)

    def let_in(self, scope: Scope) -> bool:
        """Whether the request may access the operator's API."""
        names = {name for name, _ in scope["headers"]}
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        client = scope.get("client")
        if client is None or len(hosts) != 1:
            return False
        is_forwarded = not names.isdisjoint(FORWARDED)
        return self._is_good_address(client[0], is_forwarded) and self._is_good_name(hosts[0].decode("latin-1"))

    def _is_good_address(self, text: str, is_forwarded: bool) -> bool:
        address = _address(text)
        address = getattr(address, "ipv4_mapped", None) or address
        if address is None:
            return False
        is_here = address.is_loopback and not is_forwarded
        return is_here or any(address in network for network in self._networks)

    def _is_good_name(self, host: str) -> bool:
        """Whether the host is allowed. An IP address is, because it cannot be rebound."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return is_loopback(name) or name in self._names or _address(name) is not None


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


COMMIT_SECONDS: Final = 2.0  # the timeout of the test commit
CACHE_SECONDS: Final = 1.0  # between test commits


class Readiness:
    """Whether payments can be accepted now, tested by a real commit at most once a second."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._problem: str | None = None

    async def problem(self) -> str | None:
        """Why no payments can be accepted, or None."""
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if now >= self._asked_at + CACHE_SECONDS:
                self._problem = self._no_room() or await self._no_commit()
                self._asked_at = now
        return self._database.stopped or self._problem

    def _no_room(self) -> str | None:
        try:
            is_enough = free_bytes(Path(self._database.path).parent) >= MIN_FREE_BYTES
        except OSError:  # the folder is missing; the commit reports it
            return None
        return None if is_enough else f"The disk of the database has less than {MIN_FREE_BYTES // 1024**2} MiB free"

    async def _no_commit(self) -> str | None:
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                await self._database.write(touch)
        except DomainError as error:
            return str(error)
        except TimeoutError:
            return f"The database did not take a commit within {COMMIT_SECONDS:g} seconds"
        return None


class OperatorServices(msgspec.Struct, frozen=True):
    """The services for operators' requests."""

    hosts: AdminHosts
    readiness: Readiness
    sign_in: SignInGuard
    long_works: LongWorks
    volume: DailyVolume = field(default_factory=DailyVolume)
    # Reads of events, shared by streams at the same position.
    event_reads: dict[Hashable, asyncio.Future[Any]] = field(default_factory=dict)
    # By session, what a form has done and the next page says.
    said: dict[str, Any] = field(default_factory=dict)
    # For exports in progress, per API key or operator.
    export_slots: Slots = field(default_factory=lambda: Slots(MAX_EXPORTS, MAX_EXPORTS_OF_CALLER))


def operator_of(context: Context) -> OperatorServices:
    """The services of a running server."""
    return context.part(OperatorServices)
