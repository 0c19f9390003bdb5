"""Opens every page of a new server once, in a process of its own, and prints what was loaded on the event loop's
thread, where units that write run too: modules that were imported and templates that were compiled there."""

import asyncio
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import httpx2
from jinja2 import Environment

from tests.helpers import TIMEOUT, last_segment, usd
from tests.instance import Instance, run_instance
from tests.operator.pages.browser import Browser
from tests.people.browser import OwnersBrowser, signed_in

FOUND: list[str] = []


def note(what: str) -> None:
    if asyncio._get_running_loop() is not None:  # None in other threads
        FOUND.append(what)


class Noting:
    """Is asked for each module that was not imported yet."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in sys.stdlib_module_names:
            note(name)
        return None


def watch() -> None:
    compile_template = Environment.compile

    def compiled(self: Environment, source: Any, name: str | None = None, *rest: Any, **more: Any) -> Any:
        note(f"template {name}")
        return compile_template(self, source, name, *rest, **more)

    Environment.compile = compiled  # type: ignore[method-assign]
    sys.meta_path.insert(0, Noting)


def operators_pages(instance: Instance) -> None:
    with Browser(instance) as ann:
        ann.follow_link("ann")
        from payres.operator.pages.serving import admin_pages

        for path in ["/admin", *admin_pages()]:
            values = {"wallet": "alice", "code": "USD", "scale": 2, "name": "ann"}
            if "{" not in path or set(values) & {*path.replace("}", "{").split("{")[1::2]}:
                ann.get(path.format_map(Missing(values)))
        ann.get("/admin/nothing")


class Missing(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "none"


def owners_pages(instance: Instance, owner: OwnersBrowser) -> None:
    from payres.people.serving import PLACES

    bob = instance.wallet("bob")
    bill = instance.client.create_incoming_payment(bob, usd(100))["id"]
    for path in ("/", "/alice", f"/pay/{last_segment(bill)}", *PLACES):
        owner.http.get(path.format_map(Missing()))
    price = owner.send("/account/send", "price", {"to": bob, "amount": "1", "fixed": "send", "note": ""})
    owner.http.get(price.headers["location"])
    owner.send("/settings/developer-keys", "add", {"nickname": "App", "key": "-----BEGIN PUBLIC KEY-----"})
    owner.send("/account/security/passkeys/new", "add", {"name": "Pixel 9", "answer": "{}"})


def main() -> None:
    with run_instance(Path(sys.argv[1]) / "payres.db") as instance:
        watch()
        with httpx2.Client(base_url=instance.base_url, headers={"Accept": "text/html"}, timeout=TIMEOUT) as http:
            http.get("/")
            http.get("/static/style.css")
        operators_pages(instance)
        with signed_in(instance, "olga") as owner:
            owners_pages(instance, owner)
    print(*FOUND, sep="\n", end="")  # noqa: T201


if __name__ == "__main__":
    main()
