"""What every JSON answer looks like, errors among them."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response

from payres.errors import DomainError
from payres.http import cross_origin
from payres.wire import encode

JSON: Final = "application/json"
JSON_CONTENT: Final = (b"content-type", JSON.encode())


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer with the struct as JSON; it is for the caller alone unless the headers say otherwise."""
    if headers:
        return Response(encode(content), status, {"Cache-Control": "no-store", **headers}, media_type=JSON)
    return _JsonResponse(encode(content), status)


class _JsonResponse(Response):
    """Nearly every answer, whose headers need not be made of text each time."""

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        length = b"%d" % len(self.body)
        self.raw_headers = [(b"cache-control", b"no-store"), (b"content-length", length), JSON_CONTENT]


def json_error(error: DomainError) -> Response:
    """The answer for an error, as far as no request is needed for it."""
    details = {"hint": str(error), **error.details}
    shown = {"code": error.code, "description": error.description, "details": details}
    return json_response({"error": shown}, error.status, error.headers)


def last_response(error: DomainError, headers: Iterable[tuple[bytes, bytes]], method: bytes) -> bytes:
    """The bytes of the answer for an error that ends its connection; `headers` are those of all answers.

    Whether a script of another origin asked may not be known yet: the answer is for every script.
    """
    response = json_error(error)
    response.headers.update(cross_origin.ANSWER)
    status = HTTPStatus(response.status_code)
    fields = dict([*last_headers(headers), *response.raw_headers, (b"connection", b"close")])
    lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode(), *(b"%b: %b" % field for field in fields.items())]
    return b"\r\n".join([*lines, b"", b"" if method == b"HEAD" else bytes(response.body)])


def last_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Of the headers of all answers, those of one that ends its connection: without how long that stays open."""
    return [field for field in headers if field[0] != b"keep-alive"]
