"""What a client gets whose request is in progress at a reset, in whatever turn of the event loop that comes."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from payres.core.http.responses import CutShort
from payres.core.process.settings import Settings
from payres.core.protocol.clock import SystemClock
from payres.core.protocol.errors import Unavailable
from payres.html.streams import Stream
from payres.testing.server import SandboxServer

SCOPE: Scope = {
    "type": "http",
    "method": "GET",
    "path": "/alice",
    "raw_path": b"/alice",
    "query_string": b"",
    "headers": [],
}
TURNS = 30  # more than any of these answers takes


async def plain(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.sleep(0)
    await PlainTextResponse("all of it")(scope, receive, send)


async def in_parts(scope: Scope, receive: Receive, send: Send) -> None:
    async def parts() -> AsyncGenerator[bytes]:
        for part in (b"all ", b"of ", b"it"):
            await asyncio.sleep(0)
            yield part

    await Stream(parts(), "text/plain", {})(scope, receive, send)


class WithoutDatabase(SandboxServer):
    async def read(self, unit: Any) -> Any:
        raise Unavailable("There is none")


async def asked(folder: Path, app: Any, turns: int | None) -> tuple[list[Message], bool]:
    """What is sent for a request, with a reset after some turns of the loop; and whether the answer was cut short."""
    server = WithoutDatabase(Settings(database=str(folder / "payres.db")), SystemClock(), None, None)
    server._app = cast("Any", app)
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        await asyncio.sleep(0)  # as the protocol does
        sent.append(message)

    asking = asyncio.create_task(server(SCOPE, receive, send))
    if turns is not None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.close()
    try:
        await asking
    except CutShort:
        return sent, True
    return sent, False


@pytest.mark.parametrize("app", [plain, in_parts])
async def test_request_in_progress_at_a_reset_gets_a_whole_answer_or_503(tmp_path: Path, app: Any) -> None:
    whole, _ = await asked(tmp_path, app, None)
    assert b"".join(message.get("body", b"") for message in whole) == b"all of it"
    seen = set()
    for turns in range(TURNS):
        sent, is_cut = await asked(tmp_path, app, turns)
        if is_cut:
            assert app is in_parts
            assert sent == whole[: len(sent)] != []
        elif sent != whole:
            assert [message.get("status", message.get("more_body", False)) for message in sent] == [503, False]
        seen.add("cut" if is_cut else sent[0]["status"])
    assert seen == ({200, 503} if app is plain else {200, 503, "cut"})
