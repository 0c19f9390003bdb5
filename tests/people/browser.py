"""Browsers of wallets' owners, as far as a test without scripts and pictures needs one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2

from payres.accounts.sessions import Browser, csrf_token, open_session
from payres.accounts.store.owners import OF_OWNERS, owner_of
from payres.core.store.wallets import require_wallet
from tests.helpers import TIMEOUT
from tests.instance import Instance
from tests.operator.pages.browser import hidden_fields, words_of

PASSWORD = "correct horse"
# What Chromium sends.
ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@contextmanager
def signed_out(instance: Instance, **headers: str) -> Iterator[httpx2.Client]:
    """A browser in which nobody is signed in."""
    with httpx2.Client(base_url=instance.base_url, timeout=TIMEOUT, headers={"Accept": ACCEPT} | headers) as http:
        yield http


class OwnersBrowser:
    """It is signed in, keeps its cookies and follows no redirects."""

    def __init__(self, instance: Instance, path: str, **headers: str) -> None:
        found = instance.write(
            lambda work: open_session(work, OF_OWNERS, owner_of(work, require_wallet(work, path).id), Browser())
        )
        self.instance = instance
        self.path = path
        self.http = httpx2.Client(base_url=instance.base_url, timeout=TIMEOUT, headers={"Accept": ACCEPT} | headers)
        self.http.cookies.set("payres_session", found.session, urlsplit(instance.base_url).hostname or "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    @property
    def csrf(self) -> str:
        """The token of every form of this session while it shows the wallet."""
        return f"{csrf_token(self.http.cookies['payres_session'])}.{self.path}"

    def words(self, path: str, status: int = 200, **params: Any) -> str:
        """The words of a page, as they are read."""
        answer = self.http.get(path, params=params or None)
        assert answer.status_code == status, answer.text
        return words_of(answer)

    def send(
        self, path: str, choice: str, fields: Mapping[str, Any] | None = None, csrf: str | None = None
    ) -> httpx2.Response:
        """Sends the form of a page that this button is of, with what it showed."""
        shown = {name: text for name, text in hidden_fields(self.http.get(path)).items() if name.startswith("was.")}
        sent = {"csrf": self.csrf if csrf is None else csrf, "choice": choice} | shown | dict(fields or {})
        return self.http.post(path, data=sent)


@contextmanager
def signed_in(instance: Instance, path: str, language: str = "en", deposit: str = "100.00") -> Iterator[OwnersBrowser]:
    """The browser of the owner of a new wallet, who can sign in with PASSWORD."""
    instance.create_wallet(path, password=PASSWORD, deposit=deposit, name=path.capitalize())
    with OwnersBrowser(instance, path, **{"Accept-Language": language}) as browser:
        yield browser
