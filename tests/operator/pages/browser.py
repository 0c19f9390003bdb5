"""A browser on the operator's pages, as far as a test without scripts and pictures needs one."""

import re
from html import unescape
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2

from payres.operator import operators
from payres.operator.roles import Role
from tests.helpers import TIMEOUT, sign_in_token
from tests.instance import Instance

PASSWORD = "correct horse"


class Browser:
    """It keeps its cookies, follows no redirects, and sends forms with what is hidden in them."""

    def __init__(self, instance: Instance, address: str | None = None) -> None:
        """`address` is the one that a proxy names as its own."""
        self.instance = instance
        headers = {"X-Forwarded-For": address} if address else {}
        self.http = httpx2.Client(base_url=instance.base_url, timeout=TIMEOUT, headers=headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.http.close()

    @property
    def session(self) -> str | None:
        """The secret in the cookie."""
        return self.http.cookies.get("payres_admin")

    def new_link(self, name: str, *, role: Role = "full") -> str:
        """The path of a one-time link."""
        made = self.instance.write(lambda work: operators.make_link(work, name, role=role))
        return urlsplit(made.url).path

    def follow_link(self, name: str, *, role: Role = "full") -> httpx2.Response:
        """Sets the password by a new link, which signs in."""
        answer = self.send(self.new_link(name, role=role), password=PASSWORD, again=PASSWORD)
        assert (answer.status_code, answer.headers["location"]) == (303, "/admin"), answer.text
        return answer

    def sign_in(self, name: str, password: str = PASSWORD, path: str = "/admin") -> httpx2.Response:
        """Sends the form for it, which who is signed in has from before; follows to the page of a half sign-in."""
        fields = {"choice": "sign-in", "name": name, "password": password, "csrf": sign_in_token(self.http, path)}
        answer = self.http.post(path, data=fields)
        return self.get(path) if "payres_admin_half" in answer.cookies else answer

    def get(self, path: str, **params: Any) -> httpx2.Response:
        return self.http.get(path, params=params or None)

    def words(self, path: str, **params: Any) -> str:
        """The words of a page that must be there, as they are read."""
        answer = self.get(path, **params)
        assert answer.status_code == 200, answer.text
        return words_of(answer)

    def rows(self, path: str, **params: Any) -> list[dict[str, str]]:
        """The rows of the page's first table, by their headings."""
        answer = self.get(path, **params)
        assert answer.status_code == 200, answer.text
        return rows_of(answer.text.partition("<tbody")[2].partition("</tbody>")[0])

    def send(self, path: str, /, **fields: str) -> httpx2.Response:
        """Sends the form on a page with these fields, and with what is hidden in it."""
        answer = self.http.post(path, data=hidden_fields(self.get(path)) | fields)
        assert "`payres " not in answer.text, "advice for a shell"
        return answer


def hidden_fields(page: httpx2.Response) -> dict[str, str]:
    """What is hidden in the forms of a page, and what its fields are filled with, as it is sent if nobody types."""
    found = re.findall(r'<input type="hidden" name="(was\.\w+)" value="([^"]*)">', page.text)
    filled = {name: unescape(value) for name, value in found}
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([\w-]+)">', page.text))
    return {name.removeprefix("was."): value for name, value in filled.items()} | filled | hidden


def words_of(page: httpx2.Response) -> str:
    body = page.text.partition("<main")[2].partition(">")[2].partition("</main>")[0]
    return _words(re.sub(r'<nav (class="trail"|aria-label="(Programs|Server)").*?</nav>', "", body, flags=re.S))


def rows_of(body: str) -> list[dict[str, str]]:
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", body, re.S)
    cells = [re.findall(r'<td role="cell" data-label="([^"]*)"[^>]*>(.*?)</td>', row, re.S) for row in rows]
    found = [{unescape(heading): text for heading, text in row} for row in cells]
    for row in found:
        for heading, text in [*row.items()]:  # what a row is called stands above its first value
            title, is_titled, below = text.partition("<small>")
            row |= {heading: below, "title": title} if is_titled else {}
    return [{heading: _words(text) for heading, text in row.items()} for row in found]


def _words(text: str) -> str:
    """What is shortened stands whole in the title."""
    text = re.sub(r'<span [^>]*title="([^"]*)">[^<]*</span>', r"\1", text)
    spaced = re.sub(r"</(p|h\d|li|div|dt|dd|td|th|option|label)>", " ", text)
    return " ".join(unescape(re.sub(r"<[^>]*>", "", spaced)).split())
