"""An internet made up for a test: names that change, and a public address behind which a server of the test answers."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from ipaddress import ip_address
from typing import Any

import pytest

from payres.core.remote import ip_addresses, transport
from payres.core.remote.connection import GuardedConnection

PUBLIC = "93.184.216.34"


class Internet:
    """Every connection that a server asks for, by address.

    Only loopback and those `reached`, at a port of this machine, are really there. Those that are `silent` accept no
    connection, and `on_silence` is called.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.connections: list[str] = []
        self.lookups: Counter[str] = Counter()
        self.reached: dict[str, int] = {}
        self.silent: Collection[str] = ()
        self.on_silence: Callable[[], None] = lambda: None
        self._names: dict[str, Sequence[Sequence[str] | Exception]] = {}
        self._find = ip_addresses.find_addresses
        self._connect = transport.open_connection
        patch.setattr(ip_addresses, "find_addresses", self.find)
        patch.setattr(transport, "open_connection", self.connect)

    async def connect(
        self, protocol: Callable[[], GuardedConnection], address: str, port: int, **tls: Any
    ) -> tuple[asyncio.BaseTransport, GuardedConnection]:
        self.connections.append(address)
        if address in self.silent:
            self.on_silence()
            await asyncio.Event().wait()
        if address in self.reached:
            return await self._connect(protocol, "127.0.0.1", self.reached[address], **tls)
        if not ip_address(address).is_loopback:
            raise ConnectionRefusedError("nobody is there")
        return await self._connect(protocol, address, port, **tls)

    def point(self, name: str, *answers: Sequence[str] | Exception) -> None:
        """The results of lookups of a name in turn; the last one repeats."""
        self._names[name] = answers

    def find(self, host: str, port: int) -> Sequence[str]:
        if host not in self._names:
            return self._find(host, port)
        answers = self._names[host]
        self.lookups[host] += 1
        found = answers[min(self.lookups[host], len(answers)) - 1]
        if isinstance(found, Exception):
            raise found
        return found
