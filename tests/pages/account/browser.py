"""A browser of a wallet's owner, as far as a test without scripts and pictures needs one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import httpx2

from payres.grants.sign_in import Browser, csrf_token, open_session
from payres.operator.wallets import require_wallet
from payres.testing.instance import Instance
from tests.helpers import TIMEOUT
from tests.pages.admin.browser import words_of

# What Chromium sends.
ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@contextmanager
def stranger(instance: Instance, **headers: str) -> Iterator[httpx2.Client]:
    """A browser in which nobody is signed in."""
    with httpx2.Client(base_url=instance.base_url, timeout=TIMEOUT, headers={"Accept": ACCEPT} | headers) as http:
        yield http


class OwnersBrowser:
    """It is signed in, keeps its cookies and follows no redirects."""

    def __init__(self, instance: Instance, path: str, **headers: str) -> None:
        signed_in = instance.write(lambda work: open_session(work, require_wallet(work, path), Browser(None, {})))
        self.path = path
        self.session = signed_in.session
        self.csrf = csrf_token(self.session)
        self.http = httpx2.Client(base_url=instance.base_url, timeout=TIMEOUT, headers=headers)
        self.http.cookies.set("payres_session", self.session)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def words(self, path: str, **params: Any) -> str:
        """The words of a page that must be there, as they are read."""
        answer = self.http.get(path, params=params or None)
        assert answer.status_code == 200, answer.text
        return words_of(answer)

    def send(
        self, path: str, choice: str, fields: Mapping[str, Any] | None = None, csrf: str | None = None
    ) -> httpx2.Response:
        """Sends a form of a page."""
        sent = {"csrf": self.csrf if csrf is None else csrf, "choice": choice} | dict(fields or {})
        return self.http.post(path, data=sent)
