"""The head of a request inside the application, without an HTTP server."""

import json
from pathlib import Path
from typing import Any

from payres.application import create_app
from payres.core.process.settings import Settings
from payres.core.protocol.limits import MAX_HEADER_BYTES

PAGE = "/interact/no/such/page"


async def test_header_section_is_taken_up_to_the_limit_exactly(tmp_path: Path) -> None:
    app = create_app(Settings(database=str(tmp_path / "payres.db")))

    async def ask(size: int) -> list[Any]:
        """What the application sends for a request whose header section has so many bytes."""
        sent: list[Any] = []

        async def receive() -> Any:
            raise AssertionError("nothing is read of a request that is refused for its headers")

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"x", b"a" * (size - len(f"GET {PAGE}?a=b HTTP/1.1\r\nx: \r\n\r\n")))]
        target = {"path": PAGE, "raw_path": PAGE.encode(), "query_string": b"a=b"}
        client = ("203.0.113.1", 1)
        await app({"type": "http", "method": "GET", "client": client, "headers": headers, **target}, receive, send)
        return sent

    async with app.router.lifespan_context(app):
        taken = await ask(MAX_HEADER_BYTES)
        refused, body = await ask(MAX_HEADER_BYTES + 1)
    assert taken[0]["status"] == 404
    assert (refused["status"], dict(refused["headers"])[b"connection"]) == (431, b"close")
    assert json.loads(body["body"])["error"]["code"] == "too_large"
