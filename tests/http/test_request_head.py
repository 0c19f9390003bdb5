"""The head of a request inside the application, without an HTTP server."""

import json
from pathlib import Path
from typing import Any

import pytest

from payres.application import create_app
from payres.http.request_head import credentials
from payres.limits import MAX_HEADER_BYTES
from payres.settings import Settings

PAGE = "/interact/no/such/page"
HOST = (b"host", b"wallet.example")


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


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        *(([value], found) for value, found in ((b"GNAP abc", "abc"), (b"gnap abc", "abc"), (b"GNAP  abc \t", "abc"))),
        *(([value], None) for value in (b"Bearer abc", b"GNAP", b"GNAP ", b"", b"GNAPabc")),
        ([b"GNAP \xe4"], "ä"),
        ([b"GNAP a", b"GNAP b"], "a"),
        ([], None),
    ],
)
def test_credentials_are_those_of_the_scheme_on_the_first_line(lines: list[bytes], found: str | None) -> None:
    assert credentials([HOST, *((b"authorization", line) for line in lines)], "gnap") == found
