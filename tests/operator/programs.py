"""Programs of operators, and what is held of every answer that they get."""

import json
from collections.abc import Callable
from typing import Any

import httpx2

from payres.openapi.documents import as_text
from payres.operator.api_keys import SCOPES, create_api_key
from payres.operator.declared.api import admin_document
from tests.helpers import Json
from tests.instance import Instance
from tests.openapi.documents import BASE_URL, Documented

BASE = "/admin/v1"
DOCUMENT: Json = json.loads(as_text(admin_document(BASE_URL)))
DOCUMENTED = Documented(DOCUMENT)


class Program:
    """A program of the operator with its own key."""

    def __init__(self, instance: Instance, http: httpx2.Client, *scopes: str) -> None:
        self.instance = instance
        self.http = http
        made = instance.write(lambda work: create_api_key(work, "test", scopes or list(SCOPES), None))
        self.key, self.id = made.key, made.id

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        key: str | None = None,
        match: str | None = None,
        none_match: str | None = None,
        **params: Any,
    ) -> httpx2.Response:
        """An answer; `key` is the Idempotency-Key, `match` the If-Match, `none_match` the If-None-Match."""
        headers = {"Authorization": f"Bearer {self.key}"} | ({} if key is None else {"Idempotency-Key": key})
        headers |= {
            name: text for name, text in (("If-Match", match), ("If-None-Match", none_match)) if text is not None
        }
        sent = {} if body is None else {"json": body}
        url = f"{self.instance.base_url}{BASE}{path}"
        answer = self.http.request(method, url, headers=headers, params=params or None, **sent)
        DOCUMENTED.check(answer)
        assert answer.is_success or "`payres " not in answer.text, "advice for a shell"
        return answer

    def get(self, path: str, **params: Any) -> Json:
        return self._good(self.ask("GET", path, **params), 200)

    def post(self, path: str, body: Any, key: str | None = None) -> Json:
        return self._good(self.ask("POST", path, body, key), 201)

    def change(self, method: str, path: str, body: Any = None) -> Json:
        return self._good(self.ask(method, path, body), 200)

    def audited(self) -> list[tuple[str, str, str, Json]]:
        """The audit log, newest first: actor, action, object, details."""
        return [
            (one["actor"], one["action"], one["object"], one["details"]) for one in self.get("/audit-log")["result"]
        ]

    @staticmethod
    def _good(answer: httpx2.Response, status: int) -> Json:
        assert answer.status_code == status, answer.text
        found: Json = answer.json()
        return found


NewProgram = Callable[..., Program]
