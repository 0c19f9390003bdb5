"""The network: byte streams between nodes, in memory, with what happens to real ones."""

import asyncio
import os
import re
import socket
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.simulation.loop import NodeLoop
    from tests.simulation.world import Node, World

# After such an answer the same request may succeed (docs/peering.md): a gateway that repeats it then pays twice.
REFUSED: Final = (b"HTTP/1.1 401", b"HTTP/1.1 429")
REQUEST: Final = re.compile(rb"(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS) ")
NOTHING: Final = os.pipe()[0]
ABROAD: Final = 0.25  # of the fates strike where a payment takes many requests, each of them once
GIVES_TOKEN: Final = re.compile(rb"POST /(token|continue)/")
TOKEN_LOST: Final = 0.25  # more of their answers are lost, so that each seed has some
SHORTEST, LONGEST = 0.0005, 0.03  # seconds that bytes are under way
LATE: Final = (0.5, 4.0, 20.0, 45.0)  # more seconds that what is late is under way
AGAIN_AFTER: Final = (0.01, 0.2, 3.0)  # seconds until a repeated request arrives


class End(asyncio.Transport):
    """One end of a stream. Bytes arrive in order."""

    def __init__(self, loop: "NodeLoop", protocol: Any, stream: "Stream", here: Any, there: Any) -> None:
        self.is_lost = self.is_over = False
        asked = {"family": socket.AF_INET, "getsockname": lambda: here, "getpeername": lambda: there}
        # Before clients use a connection again, they ask for something to read, of which there is none.
        asked["fileno"] = lambda: -1 if self.is_over else NOTHING
        super().__init__({"sockname": here, "peername": there, "socket": SimpleNamespace(**asked)})
        self.loop, self.protocol, self.stream = loop, protocol, stream
        self.other: End
        self.due = 0.0  # when the last bytes to the other end arrive
        self._is_closing = self._has_ended = self._is_paused = False
        self._held: list[Callable[[], None]] = []  # what arrived since nobody reads

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        while self._held and not self._is_paused:
            self._held.pop(0)()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing waits to be written."""

    def write(self, data: Any) -> None:
        if not self._is_closing and data:
            self.stream.send(self, bytes(data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self.stream.end(self)

    def close(self) -> None:
        if not self._is_closing:
            self.write_eof()
            self._lose(None)

    def abort(self) -> None:
        if not self._is_closing:
            self.stream.reset(self)
            self._lose(None)

    # Called by the stream, on this end's loop

    def arrive(self, data: bytes) -> None:
        if self._is_closing:
            self.stream.reset(self)  # nobody reads here any more
        elif self._is_paused:
            self._held.append(partial(self.arrive, data))
        else:
            self.protocol.data_received(data)

    def arrive_end(self) -> None:
        self.is_over = True
        if self._held:
            self._held.append(self.arrive_end)
        elif not self._is_closing and not self.protocol.eof_received():
            self.close()

    def arrive_reset(self) -> None:
        if not self._is_closing:
            self._lose(ConnectionResetError(104, "Connection reset by peer"))

    def _lose(self, error: Exception | None) -> None:
        self._is_closing = self.is_over = True
        self.loop.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        self.is_lost = True
        self.protocol.connection_lost(error)


class Stream:
    """A connection. Each request on it has a fate of its own, which its answer shares."""

    def __init__(self, network: "Network", client: "NodeLoop", server: "NodeLoop", protocol: Any) -> None:
        self.network = network
        here, there = network.new_port(client.node), (server.node.address, 80)
        self.client = End(client, protocol, self, here, there)
        self.server = End(server, None, self, there, here)
        self.client.other, self.server.other = self.server, self.client
        self.request = bytearray()  # the last one, so far; empty once it was refused
        self.fate = ""
        self.dice = network.world.delays  # of its own if the request has a fate

    def send(self, sender: End, data: bytes) -> None:
        world = self.network.world
        world.note("bytes", sender.loop.node.name, sender.other.loop.node.name, data)
        if self.network.is_cut(sender.loop.node, sender.other.loop.node):
            return
        if sender is self.client:
            self._send_request(data)
        else:
            self._send_answer(data)

    def end(self, sender: End) -> None:
        if self.fate != "lost answer" and not self.network.is_cut(sender.loop.node, sender.other.loop.node):
            self._deliver(sender, sender.other.arrive_end)

    def reset(self, sender: End) -> None:
        self._deliver(sender, sender.other.arrive_reset)

    def _send_request(self, data: bytes) -> None:
        if REQUEST.match(data):
            self.request = bytearray()
            self.fate = self.network.draw_fate(self, data)
        self.request += data
        if self.fate == "lost request":
            return
        if self.fate == "reset request":
            self.reset(self.client)
            self.client.loop.call_soon(self.client.arrive_reset)
            return
        if self.fate == "late request":
            self.client.due = max(self.client.due, self.network.world.now + self.dice.choice(LATE))
        elif self.fate == "repeated":
            self.network.repeat(self)
        self._deliver(self.client, self.server.arrive, data)

    def _send_answer(self, data: bytes) -> None:
        if data.startswith(REFUSED):
            self.request.clear()
        if self.fate == "lost answer":
            return
        if self.fate == "half an answer":
            data = data[: self.dice.randrange(len(data))]
        elif self.fate == "late answer":
            self.server.due = max(self.server.due, self.network.world.now + self.dice.choice(LATE))
        if self.fate != "reset answer":
            self._deliver(self.server, self.client.arrive, data)
        if self.fate in ("half an answer", "reset answer"):
            self._deliver(self.server, self.client.arrive_reset)

    def _deliver(self, sender: End, arrive: Callable[..., None], *args: Any) -> None:
        world, other = self.network.world, sender.other
        sender.due = max(sender.due, world.now + self.network.latency())
        self.network.due = max(self.network.due, sender.due)

        def on_arrival() -> None:
            if not other.loop.is_dead:
                other.loop.call_soon(arrive, *args)
            elif other.loop.node.is_up and not sender.loop.is_dead:  # another life knows nothing of this connection
                sender.loop.call_soon(sender.arrive_reset)

        world.at(sender.due, on_arrival)


class Network:
    """All streams. `cuts` are the pairs of nodes that cannot reach each other, `unknown` the names that fail."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.shares: dict[str, float] = {}  # of the requests that have a fate
        self.cuts: dict[frozenset[str], None] = {}
        self.unknown: dict[str, None] = {}
        self.due = 0.0  # when the last bytes arrive that are under way
        self._streams: list[Stream] = []
        self._ports = 40000

    async def connect(self, loop: "NodeLoop", factory: Callable[[], Any], address: str) -> tuple[End, Any]:
        """A connection. Raises ConnectionRefusedError; across a cut it waits until the caller gives up."""
        node = next((node for node in self.world.nodes.values() if node.address == address), None)
        await asyncio.sleep(2 * self.latency())
        while node is None or self.is_cut(loop.node, node):
            await asyncio.sleep(1)
        if not node.is_up:
            raise ConnectionRefusedError(111, "Connection refused")
        protocol = factory()
        client = self._join(loop, protocol, node)
        protocol.connection_made(client)
        return client, protocol

    def is_cut(self, one: "Node", other: "Node") -> bool:
        return frozenset((one.name, other.name)) in self.cuts

    def new_port(self, node: "Node") -> tuple[str, int]:
        self._ports += 1
        return node.address, self._ports

    def latency(self) -> float:
        return self.world.delays.uniform(SHORTEST, LONGEST)

    def draw_fate(self, stream: Stream, head: bytes) -> str:
        """What happens to a request or to its answer, by a number of its own."""
        client, server = stream.client.loop.node, stream.server.loop.node
        if not self.shares:
            return ""
        is_abroad = client.is_foreign or server.is_foreign
        shares = {kind: share * (ABROAD if is_abroad else 1) for kind, share in self.shares.items()}
        if GIVES_TOKEN.match(head) and not server.is_foreign:
            shares["lost answer"] += TOKEN_LOST
        if is_abroad:
            shares.pop("repeated", None)  # docs/peering.md: such proxies are not covered
        fate, number = self.world.strikes(f"{client.name}>{server.name}", shares)
        if fate:
            stream.dice = self.world.dice(number)
        return fate

    def repeat(self, stream: Stream) -> None:
        """A gateway sends the same request again on another connection, and drops that answer."""
        loop, node, request = stream.client.loop, stream.server.loop.node, stream.request

        def again() -> None:
            if request and node.is_up and not loop.is_dead:
                copy = self._join(loop, asyncio.Protocol(), node)
                copy.stream.fate = "lost answer"
                copy.other.loop.call_soon(copy.other.arrive, bytes(request))

        self.world.at(self.world.now + stream.dice.choice(AGAIN_AFTER), again)

    def die(self, loop: "NodeLoop") -> None:
        """A node was killed: its system resets half of its connections, and is silent on the others."""
        for stream in self._streams:
            for end in (stream.client, stream.server):
                if end.loop is loop and not end.is_lost and self.world.delays.random() < 0.5:
                    stream.reset(end)
        self._streams = [one for one in self._streams if not (one.client.loop.is_dead or one.server.loop.is_dead)]

    def _join(self, loop: "NodeLoop", protocol: Any, node: "Node") -> End:
        assert node.loop is not None
        assert node.protocol is not None
        stream = Stream(self, loop, node.loop, protocol)
        self._streams = [one for one in self._streams if not (one.client.is_lost and one.server.is_lost)]
        self._streams.append(stream)
        stream.server.protocol = node.loop.enter(node.protocol)
        node.loop.call_soon(stream.server.protocol.connection_made, stream.server)
        return stream.client
