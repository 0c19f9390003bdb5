"""A server on the loopback interface that answers as a script says, and notes what it is asked."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec


class Request(msgspec.Struct, frozen=True):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Answer(msgspec.Struct, frozen=True):
    """`content` is sent as JSON, bytes as they are; `pause` is waited for before."""

    content: Any = b""
    status: int = 200
    headers: dict[str, str] = {}
    pause: Callable[[], Awaitable[object]] | None = None


Script = Callable[[Request], Answer]


class Site:
    """`pages` maps a method and target such as "GET /alice" to answers; a list gives one after another."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"
        self.pages: dict[str, Answer | list[Answer] | Script] = {}
        self.requests: list[Request] = []

    def asked(self, method: str) -> list[Request]:
        return [request for request in self.requests if request.method == method]

    def answer(self, request: Request) -> Answer:
        page = self.pages.get(f"{request.method} {request.target}", Answer({"error": {}}, 404))
        if isinstance(page, list):
            return page.pop(0)
        return page if isinstance(page, Answer) else page(request)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        self.requests.append(request)
        answer = self.answer(request)
        if answer.pause is not None:
            await answer.pause()
        content = answer.content if isinstance(answer.content, bytes) else msgspec.json.encode(answer.content)
        headers = {"Content-Length": str(len(content)), "Connection": "close", **answer.headers}
        lines = [f"HTTP/1.1 {answer.status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        await writer.drain()


async def read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    lines = [line.partition(":") for line in head[1:] if line]
    headers = {name.lower(): value.strip() for name, _, value in lines}
    assert len(headers) == len(lines), "a header came twice"
    return Request(method, target, headers, await reader.readexactly(int(headers.get("content-length", "0"))))
