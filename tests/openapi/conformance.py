"""Whether an answer is one that the published OpenAPI documents have, or a deviation on our list; and that ours has."""

import json
from typing import Any, NamedTuple

import jsonschema_rs

from payres.core.http.request_head import MALFORMED
from tests.openapi import documents
from tests.openapi.deviations import find_deviation
from tests.openapi.documents import JSON, Operation

ILP = "/ilp"  # for peers, which have tokens of their own
ADMIN = "/admin/"  # for programs of the operator, with a document of its own: tests/operator/programs.py has its checks
SPSP = "application/spsp4+json"  # another representation of wallet addresses, for who asks for it
HEALTH = ("/healthz", "/readyz")  # for the operator: no refusal of the API, also when it is bad

# What is no HTTP is no operation of the documents either.
NOT_HTTP = MALFORMED.encode()


class Answer(NamedTuple):
    """What a server answered to a request; `path` is the URL's, header names are lower-case."""

    method: str
    path: str
    status: int
    headers: dict[str, str]
    body: bytes


class UndocumentedAnswerError(AssertionError):
    """The answer is neither in the documents nor among the deviations."""


def check_answer(answer: Answer) -> None:
    """Raises UndocumentedAnswerError that says what is wrong with an answer, and to what."""
    try:
        _check(answer)
    except UndocumentedAnswerError as error:
        request = f"{answer.method} {answer.path}"
        shown = answer.body[:2000].decode("utf-8", "replace")
        raise UndocumentedAnswerError(f"{error}\n{request} was answered with {answer.status} {shown}") from None


def is_documented(operation: Operation, status: int, body: Any) -> bool:
    """Whether the operation's document has a response with this status and such a body."""
    if status not in operation.responses:
        return False
    validator = documents.validator(operation.id, status)
    return validator is None or validator.is_valid(body)


def _check(answer: Answer) -> None:
    if _is_for_browsers(answer) or (answer.status == 200 and answer.headers.get("content-type") == SPSP):
        return
    is_http = answer.status != 400 or NOT_HTTP not in answer.body
    operation = documents.find_operation(answer.method, answer.path) if is_http else None
    if operation is None:
        _check_method(answer)
    elif answer.status < 400:
        _check_success(operation, answer)
    elif answer.method != "HEAD":
        _check_documented(operation, answer)
    if operation is not None and answer.method != "HEAD":
        _check_served(operation, answer)
    if answer.status >= 400 and answer.path.rstrip("/") not in HEALTH and answer.method != "HEAD":
        _check_refusal(answer)


def _is_for_browsers(answer: Answer) -> bool:
    """A page at an address of the API, or the way to one, of which the documents say nothing."""
    if answer.status == 303:
        return answer.headers.get("location", "").startswith("/pay/")
    return answer.method in {"GET", "HEAD"} and answer.headers.get("content-type", "").startswith("text/html")


def _check_method(answer: Answer) -> None:
    """An address that the documents know takes no methods but theirs, and OPTIONS. Of others they say nothing."""
    if documents.paths_at(answer.path) and answer.method != "OPTIONS" and answer.status < 400:
        raise UndocumentedAnswerError("The documents have no such method at this address")


def _check_success(operation: Operation, answer: Answer) -> None:
    if answer.status not in operation.responses:
        raise UndocumentedAnswerError(f"{operation.id} has no response {answer.status}")
    validator = documents.validator(operation.id, answer.status)
    if validator is None:
        if answer.body:
            raise UndocumentedAnswerError(f"The response {answer.status} of {operation.id} has no body")
    elif answer.method != "HEAD":
        _check_body(validator, _json(answer))


def _check_documented(operation: Operation, answer: Answer) -> None:
    body = _json(answer)
    code = body["error"]["code"] if isinstance(body, dict) and isinstance(body.get("error"), dict) else ""
    if not is_documented(operation, answer.status, body) and not find_deviation(operation.id, answer.status, code):
        raise UndocumentedAnswerError(
            f"{operation.id} has no response {answer.status} {code!r}, and no deviation says so"
        )


def _check_served(operation: Operation, answer: Answer) -> None:
    """What our own document says at /openapi.json."""
    if str(answer.status) not in documents.our_operations()[operation.id]["responses"]:
        raise UndocumentedAnswerError(f"/openapi.json has no response {answer.status} of {operation.id}")
    if answer.body:
        _check_body(documents.our_validator(operation.id, answer.status), _json(answer))


def _check_refusal(answer: Answer) -> None:
    """Documented or not, a refusal has one shape, and a 401 says what would be let in."""
    if answer.headers.get("content-type", "").startswith("text/html"):
        return  # a consent page: the documents leave these to the server
    _check_body(documents.refusal_validator(), _json(answer))
    is_bearer = answer.path.rstrip("/") == ILP or answer.path.startswith(ADMIN)
    challenge = "Bearer" if is_bearer else "GNAP as_uri=http"
    if answer.status == 401 and not answer.headers.get("www-authenticate", "").startswith(challenge):
        raise UndocumentedAnswerError(f"A 401 lacks `WWW-Authenticate: {challenge}...`")


def _check_body(validator: "jsonschema_rs.Draft202012Validator", body: Any) -> None:
    errors = [
        f"{'.'.join(map(str, one.instance_path)) or 'body'}: {one.message}" for one in validator.iter_errors(body)
    ]
    if errors:
        raise UndocumentedAnswerError("The body is not as documented: " + "; ".join(errors))


def _json(answer: Answer) -> Any:
    media_type = answer.headers.get("content-type", "").partition(";")[0].strip()
    if media_type != JSON:
        raise UndocumentedAnswerError(f"Content-Type is {media_type!r}, documented is {JSON}")
    try:
        return json.loads(answer.body)
    except ValueError as error:
        raise UndocumentedAnswerError(f"The body is not JSON: {error}") from error
