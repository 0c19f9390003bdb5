"""The transport of the Open Payments client when this server uses it: GuardedClient, for untrusted URLs."""

from collections.abc import Mapping
from typing import Final

import httpx2

from payres.client.errors import AnswerLost, ConfigurationError, InvalidAnswer, NotSent
from payres.core.protocol.errors import Unavailable
from payres.core.remote.connection import FetchFailed, failing_as
from payres.core.remote.http import GuardedClient, RemoteEffect

# Parts of responses are stored while a payer is away; standard responses are shorter.
MAX_ANSWER_BYTES: Final = 8192
# Headers that GuardedClient sets itself.
_OWN_HEADERS: Final = frozenset({"host", "accept-encoding", "connection", "content-length"})


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests by a GuardedClient, with its guard, bounds and fair shares. Of the response headers only the
    Idempotency-Key is kept.

    Failures become errors of the client, or Unavailable or TooManyRequests if nothing was sent. `makes` has what each
    POST makes, by the name of its call.
    """

    def __init__(self, http: GuardedClient, makes: Mapping[str, RemoteEffect]) -> None:
        self._http = http
        self._makes = makes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends the request and reads the whole response."""
        headers = {name: value for name, value in request.headers.items() if name not in _OWN_HEADERS}
        makes = self._makes[request.extensions["call"]] if request.method == "POST" else None
        with failing_as(_error):
            answer = await self._http.request(request.method, str(request.url), headers, request.content, makes=makes)
        if len(answer.body) > MAX_ANSWER_BYTES:
            raise InvalidAnswer(answer.status, [f"it has more than {MAX_ANSWER_BYTES} bytes"])
        kept = {name: value for name, value in answer.headers.items() if name == "idempotency-key"}
        return httpx2.Response(answer.status, headers=kept, content=answer.body, request=request)


def _error(failed: FetchFailed) -> Exception:
    if failed.reason == "busy":
        return Unavailable(failed.sentence)
    if failed.reason == "bad_content":
        return InvalidAnswer(200, [failed.sentence])
    if not failed.unsent:
        return AnswerLost(failed.sentence)
    return NotSent(failed.sentence) if failed.retryable else ConfigurationError(failed.sentence)
