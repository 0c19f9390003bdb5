"""Switches under the system's time, randomness, names and files. Import this before payres, which binds some of them:
it raises ImportError if that is not so. While `world` is None, everything is real."""

import os
import random
import socket
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import uuid_utils

if TYPE_CHECKING:
    from tests.simulation.world import World

if early := sorted(name for name in sys.modules if name.partition(".")[0] == "payres"):
    raise ImportError(
        f"{early[0]} was imported before tests.simulation.switches, and keeps the real time: import it after"
    )

world: "World | None" = None


def _switch(module: Any, name: str, simulated: Callable[..., Any]) -> None:
    real = getattr(module, name)

    def switched(*args: Any, **options: Any) -> Any:
        return real(*args, **options) if world is None else simulated(world, real, *args, **options)

    switched.__name__ = switched.__qualname__ = name
    setattr(module, name, switched)


def _addresses(world: "World", real: Callable[..., Any], host: Any, port: Any, *args: Any, **options: Any) -> Any:
    """The address of a node by its name; those of numbers are as ever."""
    address = (host.decode() if isinstance(host, bytes) else str(host)).rstrip(".")
    if any(letter.isalpha() for letter in address):
        if options.get("flags", 0) & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "no number")
        address = world.address_of(address)
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port or 0))]


_switch(os, "urandom", lambda world, real, count: world.entropy.randbytes(count))
random._urandom = os.urandom  # type: ignore[attr-defined]  # what SystemRandom and `secrets` read
for _clock in ("perf_counter", "monotonic"):
    _switch(time, _clock, lambda world, real: world.now)
_switch(time, "time", lambda world, real: world.wall / 1e6)
_switch(time, "time_ns", lambda world, real: world.wall * 1000)
_switch(uuid_utils, "uuid7", lambda world, real, **options: world.new_uuid(**options))
_switch(socket, "getaddrinfo", _addresses)
_switch(socket, "create_connection", lambda world, real, address, *args, **options: world.doors[address[0]]())
_switch(sqlite3, "connect", lambda world, real, *args, **options: world.connect(real, *args, **options))
