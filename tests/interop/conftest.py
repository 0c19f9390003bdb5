"""What the tests with programs from npm run against: a node, Node.js, and a wallet's owner."""

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest
from playwright.sync_api import sync_playwright

from tests.helpers import TIMEOUT, Json, child
from tests.interop import python_scenarios
from tests.interop.node import PASSWORD, Node, run_node

HERE = Path(__file__).parent
CHROMIUM_FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)

Decide = Callable[[str, str], None]  # makes a choice, `approve` or `deny`, at the URL that the owner is sent to
RunScenario = Callable[..., dict[str, Json]]
UseProgram = Callable[[str, Json], AbstractContextManager[IO[str]]]
RunProgram = Callable[[str, Json], Json]
OpenReceiver = Callable[..., "Receiver"]


class Receiver(NamedTuple):
    """An Interledger peer that receives, as scenarios/receiver.mjs prints it: where it takes packets, whom they pay."""

    url: str
    destination: str
    sharedSecret: str  # noqa: N815 - as the program prints it

    def total(self) -> Json:
        """What it has received, in how many packets, of how many requests."""
        return self._ask("GET", "total")

    def credentials(self) -> Json:
        """Another destination with its shared secret."""
        return self._ask("POST", "credentials")

    def change(self, **settings: Any) -> Json:
        """Changes its settings, which scenarios/receiver.mjs explains; returns all of them."""
        return self._ask("PATCH", "settings", json.dumps(settings).encode())

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Json:
        request = urllib.request.Request(self.url.removesuffix("ilp") + path, body, method=method)
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            told: Json = json.load(answer)
        return told


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One node for all whose programs go by this machine's clock, which is quicker than one for each."""
    with run_node(tmp_path_factory.mktemp("node") / "payres.db", continue_wait=1) as node:
        yield node


@pytest.fixture(scope="session")
def app(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Json:
    """A client: what a scenario needs to sign in its name. It has nothing of its own that tests could quarrel about."""
    return node.open_app("app", tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="session")
def other_app(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Json:
    """Another client, which the first one's grants are no business of."""
    return node.open_app("other-app", tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="session")
def use_program() -> Iterator[UseProgram]:
    """Hands a line of JSON to a program of scenarios/, and lends what it prints.

    One process of each serves all tests, because starting it takes longer than what a test wants. One with which a
    test has failed is not used again.
    """
    idle: dict[str, subprocess.Popen[str]] = {}
    with ExitStack() as opened:

        @contextmanager
        def use(program: str, line: Json) -> Iterator[IO[str]]:
            process = idle.pop(program, None)
            if process is None:
                pipes: Json = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
                process = opened.enter_context(child(_node(program), **pipes))
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps(line), file=process.stdin, flush=True)
            yield process.stdout
            idle[program] = process

        yield use


@pytest.fixture(scope="session")
def run_scenario(use_program: UseProgram) -> RunScenario:
    """Has a scenario told with these settings; returns its steps by name, in their order.

    A step with `decide` sends the wallet's owner to that URL, who decides before the next step is read.
    """

    def run(scenario: str, settings: Json, decide: Decide | None = None) -> dict[str, Json]:
        steps: dict[str, Json] = {}
        with use_program("run", {"scenario": scenario, "settings": settings}) as printed:
            while "end" not in steps:
                line = printed.readline()
                assert line, f"{scenario} broke off after {list(steps)[-1:]}"
                step: Json = json.loads(line)
                name = step.pop("step")
                assert name not in steps, f"{scenario} has two steps {name!r}"
                steps[name] = step
                if "decide" in step:
                    assert decide is not None, f"{scenario} asks for consent and there is nobody to decide"
                    decide(step["decide"], step["choice"])
        del steps["end"]
        return steps

    return run


@pytest.fixture(params=["javascript", "python"])
def tell(request: pytest.FixtureRequest, run_scenario: RunScenario) -> RunScenario:
    """As `run_scenario`, with the official client and with `payres.client`."""
    return run_scenario if request.param == "javascript" else python_scenarios.tell


@pytest.fixture(scope="session")
def run_program(use_program: UseProgram) -> RunProgram:
    """What a program of scenarios/ answers to a line of settings."""

    def run(program: str, settings: Json) -> Json:
        with use_program(program, settings) as printed:
            line = printed.readline()
            assert line, f"{program} broke off with {settings}"
            result: Json = json.loads(line)
            return result

    return run


@pytest.fixture(scope="session")
def open_receiver(run_program: RunProgram) -> OpenReceiver:
    """Opens Interledger receivers with the settings that scenarios/receiver.mjs explains."""
    return lambda **settings: Receiver(**run_program("receiver", settings))


@pytest.fixture
def owner(node: Node) -> Decide:
    """A wallet's owner, whose browser goes where the decision leads, if anywhere."""
    return partial(decide_at, node)


def decide_at(node: Node, url: str, choice: str) -> None:
    redirect = (node.instance.approve if choice == "approve" else node.instance.deny)(url)
    if redirect is not None:
        with urllib.request.urlopen(redirect, timeout=TIMEOUT) as page:
            assert page.status == 200


@pytest.fixture(params=["owner", "owner_in_browser"])
def any_owner(request: pytest.FixtureRequest) -> Decide:
    """A wallet's owner, who decides in either of two ways."""
    decide: Decide = request.getfixturevalue(request.param)
    return decide


ANSWERS: dict[str, str | re.Pattern[str]] = {"approve": re.compile("Allow"), "deny": "Don’t allow"}


@pytest.fixture
def owner_in_browser(chromium_path: str) -> Iterator[Decide]:
    """The owner signs in on the consent page, in Chromium, and decides there."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=CHROMIUM_FLAGS)

        def decide(url: str, choice: str) -> None:
            page = browser.new_page()
            page.set_default_timeout(TIMEOUT * 1000)
            page.goto(url)
            page.get_by_label("Password").fill(PASSWORD)
            page.get_by_role("button", name="Sign in", exact=True).click()
            page.get_by_role("button", name=ANSWERS[choice]).last.click()
            page.get_by_role("heading", name="Back in the app").wait_for()
            page.close()

        yield decide
        browser.close()


def _node(program: str) -> list[str]:
    """The command that runs a program of scenarios/."""
    if not (HERE / "node_modules").is_dir():
        pytest.fail("tests/interop/node_modules is missing: run `make test`, which installs what comes from npm")
    node = shutil.which("node")
    if node is None:
        pytest.fail("The programs from npm need Node 20 or later, and there is no `node` on the PATH")
    return [node, str(HERE / "scenarios" / f"{program}.mjs")]
