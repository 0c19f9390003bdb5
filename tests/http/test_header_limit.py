"""The limit inside the application, which stands whatever the server is: no server takes part here."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from payres.application import create_app
from payres.http.request_head import section_bytes
from payres.limits import MAX_HEADER_BYTES
from payres.settings import Settings


def scope_of(headers: list[tuple[bytes, bytes]], path: str = "/nowhere", query: bytes = b"") -> dict[str, Any]:
    target = {"path": path, "raw_path": path.encode(), "query_string": query}
    return {"type": "http", "method": "GET", "client": ("203.0.113.1", 1), "headers": headers, **target}


async def ask(scope: dict[str, Any], app: Starlette | None = None) -> list[Any]:
    """What the application sends; one that has not started fails for a request that it takes."""
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("nothing is read of a request that is refused for its headers")

    async def send(message: Any) -> None:
        sent.append(message)

    await (app or create_app(Settings()))(scope, receive, send)
    return sent


def check_refused(sent: list[Any]) -> dict[bytes, bytes]:
    start, body = sent
    assert start["status"] == 431
    assert json.loads(body["body"])["error"]["code"] == "too_large"
    headers = dict(start["headers"])
    assert headers[b"connection"] == b"close"
    return headers


@pytest.mark.parametrize(("path", "query"), [("/a", b""), ("/" * 1000, b"b=c")])
def test_section_bytes_counts_what_is_sent(path: str, query: bytes) -> None:
    headers = [(b"host", b"h"), (b"x-empty", b""), (b"x", b"y" * 100)]
    target = path.encode() + (b"?" + query if query else b"")
    sent = b"GET %b HTTP/1.1\r\nhost: h\r\nx-empty: \r\nx: %b\r\n\r\n" % (target, b"y" * 100)
    assert section_bytes(scope_of(headers, path, query)) == len(sent)


async def test_header_section_is_taken_up_to_the_limit_exactly(tmp_path: Path) -> None:
    page = "/interact/no/such/page"
    rest = MAX_HEADER_BYTES - section_bytes(scope_of([(b"x", b"")], page))
    app = create_app(Settings(database=str(tmp_path / "payres.db")))
    async with app.router.lifespan_context(app):
        accepted = await ask(scope_of([(b"x", b"a" * rest)], page), app)
    assert accepted[0]["status"] == 404
    check_refused(await ask(scope_of([(b"x", b"a" * (rest + 1))], page)))
