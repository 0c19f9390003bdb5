"""What the tests with programs from npm run against: a real server, its command line, Node, and a wallet's owner."""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest
from click.testing import CliRunner
from playwright.sync_api import sync_playwright

from payres.cli import main
from tests.helpers import TIMEOUT, Json, announced, child

HERE = Path(__file__).parent
PASSWORD = "correct horse battery staple"
CONTINUE_WAIT = "1"  # seconds; the default of 5 would only make the tests slow
CHROMIUM_FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)

Command = Callable[..., Json]
Decide = Callable[[str, str], None]  # makes a choice, `approve` or `deny`, at the URL that the owner is sent to
RunScenario = Callable[..., dict[str, Json]]
UseNode = Callable[[str, Json], AbstractContextManager[IO[str]]]
RunNode = Callable[[str, Json], Json]
OpenReceiver = Callable[..., "Receiver"]
OpenWallet = Callable[..., str]


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
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of the server and of its commands, with a database of its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PAYRES_")}
    database = tmp_path_factory.mktemp("server") / "payres.db"
    return {**inherited, "PAYRES_DATABASE": str(database), "PAYRES_CONTINUE_WAIT": CONTINUE_WAIT}


@pytest.fixture(scope="session")
def base_url(environment: dict[str, str]) -> Iterator[str]:
    """The base URL of a running `payres serve`, one a test process. It must stop cleanly, with no fault in its log."""
    directory = Path(environment["PAYRES_DATABASE"]).parent
    log = directory / "server.log"
    command = [sys.executable, "-m", "payres", "serve", "--port", "0", "--json", "--quiet"]
    with (
        log.open("wb") as stderr,
        child(command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=stderr) as process,
    ):
        base_url: str = announced(process)["baseUrl"]
        environment["PAYRES_BASE_URL"] = base_url
        yield base_url
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0, log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.fixture(scope="session")
def payres(base_url: str, environment: Mapping[str, str]) -> Command:
    """Runs a `payres` command beside the server, in this process, and returns the JSON object that it prints."""
    assert base_url == environment["PAYRES_BASE_URL"]
    settings = {name: value for name, value in environment.items() if name.startswith("PAYRES_")}

    def run(*arguments: str) -> Json:
        done = CliRunner().invoke(main, [*arguments, "--json"], env=settings, catch_exceptions=False)
        assert done.exit_code == 0, done.stderr
        resource: Json = json.loads(done.stdout)
        return resource

    return run


@pytest.fixture
def open_wallet(payres: Command) -> OpenWallet:
    """Opens a wallet, with two decimals, whose path no other test has; returns its wallet address."""
    mark = uuid.uuid4().hex[:8]

    def open_one(name: str, asset: str = "USD", deposit: str | None = None) -> str:
        path = f"{name}-{mark}"
        options = ("--asset", asset, "--scale", "2", "--name", name.capitalize(), "--password", PASSWORD)
        wallet_address: str = payres("wallet", "create", path, *options)["walletAddress"]
        if deposit is not None:
            payres("wallet", "deposit", path, deposit)
        return wallet_address

    return open_one


@pytest.fixture(scope="session")
def app(payres: Command, tmp_path_factory: pytest.TempPathFactory) -> Json:
    """A client: what a scenario needs to sign in its name. It has nothing of its own that tests could quarrel about."""
    return _open_app(payres, "app", tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="session")
def other_app(payres: Command, tmp_path_factory: pytest.TempPathFactory) -> Json:
    """Another client, which the first one's grants are no business of."""
    return _open_app(payres, "other-app", tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="session")
def use_node() -> Iterator[UseNode]:
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
def run_scenario(use_node: UseNode) -> RunScenario:
    """Has a scenario told with these settings; returns its steps by name, in their order.

    A step with `decide` sends the wallet's owner to that URL, who decides before the next step is read.
    """

    def run(scenario: str, settings: Json, decide: Decide | None = None) -> dict[str, Json]:
        steps: dict[str, Json] = {}
        with use_node("run", {"scenario": scenario, "settings": settings}) as printed:
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


@pytest.fixture(scope="session")
def run_node(use_node: UseNode) -> RunNode:
    """What a program of scenarios/ answers to a line of settings."""

    def run(program: str, settings: Json) -> Json:
        with use_node(program, settings) as printed:
            line = printed.readline()
            assert line, f"{program} broke off with {settings}"
            result: Json = json.loads(line)
            return result

    return run


@pytest.fixture(scope="session")
def open_receiver(run_node: RunNode) -> OpenReceiver:
    """Opens Interledger receivers with the settings that scenarios/receiver.mjs explains."""
    return lambda **settings: Receiver(**run_node("receiver", settings))


@pytest.fixture(params=["owner_at_command_line", "owner_in_browser"])
def owner(request: pytest.FixtureRequest) -> Decide:
    """A wallet's owner, who decides in either of two ways."""
    decide: Decide = request.getfixturevalue(request.param)
    return decide


@pytest.fixture
def owner_at_command_line(payres: Command) -> Decide:
    """The operator decides for the owner; then the owner's browser goes where the command says, if anywhere."""

    def decide(url: str, choice: str) -> None:
        redirect = payres("grant", choice, url)["redirect"]
        if redirect is not None:
            with urllib.request.urlopen(redirect, timeout=TIMEOUT) as page:
                assert page.status == 200

    return decide


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
            page.get_by_role("button", name=choice.capitalize(), exact=True).click()
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


def _open_app(payres: Command, name: str, directory: Path) -> Json:
    private_key, kid = str(directory / "private.pem"), f"{name}-key"
    wallet = payres("wallet", "create", name, "--asset", "USD", "--scale", "2", "--name", name.capitalize())
    payres("key", "generate", name, "--out", private_key, "--kid", kid)
    return {"walletAddress": wallet["walletAddress"], "privateKey": private_key, "kid": kid}
