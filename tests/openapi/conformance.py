"""Whether an answer is one that the published OpenAPI documents have, or a deviation on our list."""

import json
from typing import Any, NamedTuple

import jsonschema_rs

from tests.openapi import documents
from tests.openapi.deviations import find_deviation
from tests.openapi.documents import JSON, Operation


class Answer(NamedTuple):
    """What a server answered to a request; `path` is the URL's, header names are lower-case."""

    method: str
    path: str
    status: int
    headers: dict[str, str]
    body: bytes


class UndocumentedAnswer(AssertionError):
    """The answer is neither in the documents nor among the deviations."""


def check_answer(answer: Answer) -> None:
    """Raises UndocumentedAnswer that says what is wrong with an answer, and to what."""
    try:
        _check(answer)
    except UndocumentedAnswer as error:
        import os

        if os.environ["DOCUMENTED"] != "1":
            with open(os.environ["DOCUMENTED"], "a") as f:
                f.write(str(error) + "\n")
                return
        request = f"{answer.method} {answer.path}"
        shown = answer.body[:2000].decode("utf-8", "replace")
        raise UndocumentedAnswer(f"{error}\n{request} was answered with {answer.status} {shown}") from None


def _check(answer: Answer) -> None:
    operation = documents.find_operation(answer.method, answer.path)
    if operation is None:
        _check_outside(answer)
    elif answer.status in operation.responses and _conforms(operation, answer):
        pass
    elif answer.status < 400:
        raise UndocumentedAnswer(f"{operation.id} has no response {answer.status}, or another one than this")
    else:
        _check_deviation(operation, answer)
    if answer.status >= 400:
        _check_refusal(answer)


def _conforms(operation: Operation, answer: Answer) -> bool:
    """Whether the answer is as documented. One that should be and is not a refusal raises, saying where it is wrong."""
    validator = documents.validator(operation.document, operation.id, answer.status)
    if validator is None:
        return answer.status >= 400 or _is_empty(answer)
    if answer.method == "HEAD":
        return _is_json(answer)
    body = _json(answer)
    if answer.status < 400:
        _check_body(validator, body)
    return validator.is_valid(body)


def _check_outside(answer: Answer) -> None:
    """An address that the documents know takes no other methods than theirs. Of others they say nothing."""
    if documents.paths_at(answer.path) and answer.method != "OPTIONS" and answer.status not in {404, 405, 413}:
        raise UndocumentedAnswer("The documents have no such method at this address")


def _check_deviation(operation: Operation, answer: Answer) -> None:
    body = {} if answer.method == "HEAD" else _json(answer)
    code = body.get("error", {}).get("code")
    if find_deviation(operation.id, answer.status, code) is None:
        raise UndocumentedAnswer(f"{operation.id} has no response {answer.status} {code!r}, and no deviation says so")


def _check_refusal(answer: Answer) -> None:
    """Documented or not, a refusal has one shape, and a 401 says where to ask for a grant."""
    if answer.headers.get("content-type", "").startswith("text/html"):
        return  # a consent page, which the documents leave to the server
    if answer.method != "HEAD":
        _check_body(documents.refusal_validator(), _json(answer))
    if answer.status == 401 and not answer.headers.get("www-authenticate", "").startswith("GNAP as_uri="):
        raise UndocumentedAnswer("A 401 lacks `WWW-Authenticate: GNAP as_uri=...`")


def _check_body(validator: "jsonschema_rs.Draft202012Validator", body: Any) -> None:
    errors = [f"{'.'.join(map(str, one.instance_path))}: {one.message}" for one in validator.iter_errors(body)]
    if errors:
        raise UndocumentedAnswer("The body is not as documented: " + "; ".join(errors))


def _json(answer: Answer) -> Any:
    if not _is_json(answer):
        raise UndocumentedAnswer(f"Content-Type is {answer.headers.get('content-type')!r}, documented is {JSON}")
    try:
        return json.loads(answer.body)
    except ValueError as error:
        raise UndocumentedAnswer(f"The body is not JSON: {error}") from error


def _is_json(answer: Answer) -> bool:
    return answer.headers.get("content-type", "").partition(";")[0].strip() == JSON


def _is_empty(answer: Answer) -> bool:
    return answer.body == b"" and answer.headers.get("content-length", "0") == "0"
