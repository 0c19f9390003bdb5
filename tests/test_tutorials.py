"""The tutorials, done as a reader does them: in an empty folder, with the files and commands as they stand there.

What a package manager installs is there already, and the port is a free one.
"""

import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner

from payres.accounts.sessions import csrf_token
from payres.cli import main
from payres.webhooks.sender import signed_headers
from tests.helpers import ROOT, TIMEOUT, child, free_of_settings, sign_in_token
from tests.http_server import free_port
from tests.people.browser import ACCEPT
from tests.test_docs import blocks, text_of

TUTORIALS = {
    "README.md",
    *(f"docs/tutorials/{name}.md" for name in ("first-payment", "on-behalf-of-an-owner", "test-your-app")),
}
MODULES = ROOT / "tests/interop/node_modules"


class Reader:
    """A reader of a document, with a folder and terminals."""

    def __init__(self, folder: Path, document: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.environment = free_of_settings(PAYRES_PORT=str(self.port), PAYRES_CONTINUE_WAIT="1")
        self.environment["PATH"] = f"{Path(sys.executable).parent}:{self.environment['PATH']}"
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.text = text_of(document).replace("http://127.0.0.1:8080", self.base_url)
        if not MODULES.is_dir():
            pytest.fail("tests/interop/node_modules is missing: run `make test`, which installs the official client")
        (folder / "node_modules").symlink_to(MODULES)

    def save(self, name: str, content: str) -> None:
        (self.folder / name).write_text(content, encoding="utf-8")

    def blocks(self, language: str = "") -> list[str]:
        return blocks(self.text, language)

    def run(self, commands: str) -> str:
        """What the commands of a block print, but those that install something."""
        commands = re.sub(r"^(pip|npm) install .*\n", "", commands, flags=re.M)
        with self.running(commands) as process:
            return rest(process)

    @contextmanager
    def running(self, commands: str) -> Iterator["subprocess.Popen[str]"]:
        shell = ["bash", "-euc", commands]
        with child(
            shell, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        ) as process:
            yield process

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Runs the first block, which is the server, in a terminal of its own."""
        with self.running(self.blocks()[0]) as server:
            assert f" serves {self.base_url} " in line(server)
            yield

    def balances(self) -> dict[str, str]:
        """What `payres wallet list` shows."""
        with chdir(self.folder):
            lines = CliRunner().invoke(main, ["wallet", "list"], env=self.environment).stdout.splitlines()[1:]
        return {line.split()[0]: next(word for word in line.split() if "." in word) for line in lines}


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def rest(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    read = process.stdout.read()
    assert process.wait(TIMEOUT) == 0, read
    return read


@pytest.fixture
def reader(tmp_path: Path) -> Callable[[str], Reader]:
    return lambda name: Reader(tmp_path, f"docs/{name}.md")


def pay_in_a_browser(page: str) -> None:
    """As Alice does at the payment page of a bill."""
    with httpx2.Client(headers={"Accept": ACCEPT}, timeout=TIMEOUT, follow_redirects=True) as browser:
        bill = browser.get(page)
        found = re.search(r'<a class="button" href="(/account/send[^"]*)">I have a wallet at 127\.0\.0\.1:', bill.text)
        assert found is not None, bill.text
        send = str(bill.url.join(found[1]))
        fields = {"choice": "sign-in", "wallet": "alice", "password": "alice-demo"}
        price = browser.post(send, data=fields | {"csrf": sign_in_token(browser, send)})
        assert "Send" in price.text
        token = f"{csrf_token(browser.cookies['payres_session'])}.alice"
        paid = browser.post(str(price.url), data={"choice": "send", "csrf": token})
        assert paid.status_code == 200, paid.text


def test_readme(tmp_path: Path) -> None:
    reader = Reader(tmp_path, "README.md")
    begin = reader.blocks()[1].splitlines(keepends=True)
    (tmp_path / "var").mkdir()
    reader.environment["PAYRES_DATABASE"] = str(tmp_path / "var/payres.db")
    with reader.running("payres serve --demo") as server:
        line(server)
        reader.run("".join(begin[:2]))
        with reader.running(begin[2]) as paying:
            assert line(paying).startswith("USD 5.00 leaves")
            reader.run(f"payres grant approve {line(paying).split()[-1]}")
            rest(paying)
        assert reader.balances() == {"alice": "995.00", "bob": "5.00"}
        assert "hold" in reader.run(begin[3])


def test_first_payment(reader: Callable[[str], Reader]) -> None:
    shop = reader("tutorials/first-payment")
    _, wallet, take, _ = shop.blocks()
    [program] = shop.blocks("python")
    with shop.serving():
        shop.run(wallet)
        shop.save("take.py", program)
        with shop.running(take) as taking:
            pay_in_a_browser(line(taking).split()[-1])
            assert rest(taking) == "Received 25.00 USD\n"
        assert shop.balances() == {"alice": "975.00", "bob": "0.00", "shop": "25.00"}


def test_on_behalf_of_an_owner(reader: Callable[[str], Reader]) -> None:
    app = reader("tutorials/on-behalf-of-an-owner")
    _, wallet, pay, approve = app.blocks()
    [program] = app.blocks("js")
    with app.serving():
        app.run(wallet)
        app.save("pay.mjs", program)
        for command, amounts in ((approve, ("995.00", "5.00")), ("payres grant deny URL", ("995.00", "5.00"))):
            with app.running(f"{pay.strip()} 2>&1") as paying:
                asked = line(paying).split()[-1]
                app.run(command.replace("URL", f"'{asked}'"))
                assert paying.stdout is not None
                said = paying.stdout.read()
                assert (paying.wait(TIMEOUT) == 0) == said.startswith("Paying 500 cents") == (command == approve), said
            balances = app.balances()
            assert (balances["alice"], balances["bob"]) == amounts
        assert "hold" in app.run("payres ledger check")


def test_your_app_with_pytest(reader: Callable[[str], Reader]) -> None:
    app = reader("tutorials/test-your-app")
    [test] = app.blocks("python")
    app.save("test_shop.py", test)
    assert "1 passed" in app.run("pytest -p no:cacheprovider -p no:schemathesis")


JAVA = """import java.security.*; import java.time.*; import java.util.*;
import javax.crypto.*; import javax.crypto.spec.*;
public class Program {{ {code}
public static void main(String[] all) throws Exception {{ System.out.println(isFromPayres(
Map.of("webhook-id", all[0], "webhook-timestamp", all[1], "webhook-signature", all[2]),
all[3].getBytes(), all[4])); }} }}"""
GO = """package main
import ("crypto/hmac"; "crypto/sha256"; "encoding/base64"; "fmt"; "net/http")
import ("os"; "slices"; "strconv"; "strings"; "time")
{code}
func main() {{ all := os.Args[1:]; headers := http.Header{{}}
for i, name := range []string{{"webhook-id", "webhook-timestamp", "webhook-signature"}} {{ headers.Set(name, all[i]) }}
fmt.Println(isFromPayres(headers, []byte(all[3]), all[4])) }}"""
PHP = """<?php
{code}
[, $id, $at, $signature, $body, $secret] = $argv;
$headers = ['webhook-id' => $id, 'webhook-timestamp' => $at, 'webhook-signature' => $signature];
echo is_from_payres($headers, $body, $secret) ? 'true' : 'false';"""
RUBY = """require 'base64'
require 'openssl'
{code}
id, at, signature, body, secret = ARGV
puts from_payres?({{'webhook-id' => id, 'webhook-timestamp' => at, 'webhook-signature' => signature}}, body, secret)"""


@pytest.mark.parametrize(
    ("language", "file", "command", "program"),
    [
        ("php", "program.php", "php program.php", PHP),
        ("go", "program.go", "go run program.go", GO),
        ("java", "program.java", "java program.java", JAVA),
        ("ruby", "program.rb", "ruby program.rb", RUBY),
    ],
)
def test_webhooks_are_verified_without_a_library(
    reader: Callable[[str], Reader], language: str, file: str, command: str, program: str
) -> None:
    if shutil.which(command.split()[0]) is None:
        pytest.skip(f"{command.split()[0]} is not on this machine")
    app = reader("events")
    [code] = app.blocks(language)
    app.save(file, program.format(code=code))
    now, secret = int(time.time()), "whsec_c2VjcmV0"
    for at, sent, said in ((now, "{}", "true"), (now, "{ }", "false"), (now - 301, "{}", "false")):
        signature = dict(signed_headers("evt_1", at, b"{}", [secret]))["webhook-signature"]
        arguments = shlex.join(["evt_1", str(at), f"v1,eA== {signature}", sent, secret])
        assert app.run(f"{command} {arguments}").strip() == said
