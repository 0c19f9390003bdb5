"""`payres pay`, `request`, `sign` and `verify`, against a server and against each other."""

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from payres.client import Grant, PendingGrant, attempts
from payres.client.calls import OutgoingPayments
from payres.client.errors import AnswerLost, InsufficientFunds, NotSent, Said, WaitTimeout
from payres.client.grants import Grants
from payres.core.signatures.jwk import encode_jwk, generate_private_key, jwk_from_public_bytes, private_pem
from payres.testing.instance import Instance, run_instance
from tests.cli.conftest import AsJson, Command, facts_of, one_sentence
from tests.helpers import TIMEOUT, Json, child, free_of_settings, usd
from tests.http_server import reply, serving
from tests.rafiki import run_rafiki
from tests.tls import privately_issued

URL = "https://pay.example/quotes?a=1"
BODY = '{"receiver":"https://pay.example/incoming-payments/1"}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A server with the machine's clock."""
    with run_instance(tmp_path_factory.mktemp("server") / "payres.db") as instance:
        yield instance


@pytest.fixture
def signing(database: Path) -> list[str]:
    """Options with a key; the public key is beside it in `public.jwk`."""
    key = generate_private_key()
    Path("private.pem").write_bytes(private_pem(key))
    Path("public.jwk").write_text(encode_jwk(jwk_from_public_bytes("k-1", key.public_key().public_bytes_raw())))
    Path("body.json").write_text(BODY)
    return ["--key", "private.pem", "--kid", "k-1"]


def app_of(server: Instance, path: str, name: str | None = None) -> list[str]:
    """Options of a new app with its key."""
    app = server.new_app(path, name)
    Path("private.pem").write_text(app["private_key"])
    return ["--key", "private.pem", "--kid", app["kid"], "--client", app["wallet_address"]]


@pytest.mark.parametrize(("choice", "code", "balance"), [("approve", 0, "15.00"), ("deny", 1, "20.00")])
def test_pay_waits_for_the_owner(server: Instance, database: Path, choice: str, code: int, balance: str) -> None:
    payer = server.create_wallet(f"payer-{choice}", deposit="20.00")
    shop = server.create_wallet(f"shop-{choice}")
    command = [sys.executable, "-m", "payres", "pay", shop, "5.00", "--from", payer, "--note", "Lunch"]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
    with child([*command, *app_of(server, f"app-{choice}")], env=free_of_settings(), **options) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == f"USD 5.00 leaves {payer}, USD 5.00 arrives.\n"
        redirect = process.stdout.readline().split()[-1]
        (server.approve if choice == "approve" else server.deny)(redirect)
        told, failed = process.stdout.read(), process.stderr.read()
        assert process.wait(TIMEOUT) == code
    assert server.balance(f"payer-{choice}") == balance
    assert ("Sent      USD 5.00" in told) == (choice == "approve")
    assert ("Error: The wallet's owner said no" in failed) == (choice == "deny")
    made = "SELECT p.completed_at NOTNULL, p.received, p.expires_at - p.created_at < 3600000000 FROM incoming_payment p"
    of = f"{made} JOIN wallet_address w ON w.id = p.wallet_address_id WHERE w.path = ?"
    [bill] = server.read(lambda work: work.execute(of, (f"shop-{choice}",)).fetchall())
    assert bill == (1, 500 if choice == "approve" else 0, 1), "what is paid or given up is not left open"
    last = 'SELECT state FROM "grant" ORDER BY id DESC LIMIT 1'
    state = server.read(lambda work: work.execute(last).fetchone()[0])
    assert state == ("revoked" if choice == "approve" else "denied")


def test_pay_a_bill_from_a_wallet_by_its_path(server: Instance, database: Path) -> None:
    server.create_wallet("payer", deposit="20.00")
    bill = server.bill("bob", "7.00").id
    command = [sys.executable, "-m", "payres", "pay", bill, "--from", "payer", "--json", *app_of(server, "app")]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
    with child(command, env=free_of_settings(PAYRES_BASE_URL=server.base_url), **options) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stderr.readline()
        server.approve(process.stderr.readline().split()[-1])
        paid = json.loads(process.stdout.read())
        assert process.wait(TIMEOUT) == 0
    assert (paid["receiver"], paid["sentAmount"]["value"]) == (bill, "700")


async def at_once(core: attempts.Core, seconds: float) -> None:
    """In place of a pause."""


@pytest.mark.parametrize(("earlier", "amount"), [(None, None), ("3.00", None), (None, "7.07")])
def test_pay_ends_where_the_payer_sends_less_than_it_quoted(
    server: Instance, payres: Command, monkeypatch: pytest.MonkeyPatch, earlier: str | None, amount: str | None
) -> None:
    """As a Rafiki wallet does that pays another server: 7.06 of 7.07, and all has arrived."""
    monkeypatch.setattr(httpx2.Client, "send", inspect.unwrap(httpx2.Client.send))  # it answers as Rafiki does
    monkeypatch.setattr(attempts.Core, "sleep", at_once)
    payer = f"pays-{earlier}-{amount}"
    server.create_wallet(payer, deposit="20.00")
    bill = server.bill("bob", "10.00" if earlier else "7.00").id
    if earlier:
        server.pay(payer, bill, earlier)

    def quote(body: Json) -> tuple[int, Json]:
        receivers.append(body["receiver"])
        status, found = rafiki.usual("quote", body | {"receiveAmount": usd(700)})
        rafiki.quoted["debitAmount"] = usd(707)
        return status, found | rafiki.quoted

    def read(body: Json) -> tuple[int, Json]:
        looks.append(body)
        if len(looks) == 1:
            return rafiki.with_members("read", sentAmount=usd(300))(body)
        if len(looks) == 2:
            server.pay(payer, receivers[0], "7.00")
        return rafiki.with_members("read", sentAmount=usd(706))(body)

    looks: list[Json] = []
    receivers: list[str] = []
    with run_rafiki(server.clock) as rafiki:
        rafiki.answers |= {"quote": quote, "read": read}
        app = app_of(server, f"app-{earlier}-{amount}", "App")
        to = (bill,) if amount is None else (server.wallet("bob"), amount)
        result = payres("pay", *to, "--from", rafiki.wallet, "--timeout", "60", *app)
    assert (result.exit_code, rafiki.refused) == (0, [])
    most, least = ("At most ", "") if amount is None else ("", "at least ")
    assert result.stdout.startswith(f"{most}USD 7.07 leaves {rafiki.wallet}, {least}USD 7.00 arrives.\n")
    assert facts_of(result)["Sent"] == "USD 7.06"
    assert len(looks) == 3  # the amount that was sent before the last was not yet all


@pytest.mark.parametrize(
    ("call", "error", "code"),
    [
        ("create", AnswerLost("Lost"), 3),
        ("create", NotSent("Not sent"), 1),
        ("create", InsufficientFunds(403, Said("insufficient_funds"), {}), 1),
        ("wait", WaitTimeout("In progress"), 3),
        ("wait", AnswerLost("Lost"), 3),
    ],
)
def test_pay_says_whether_it_is_known(
    server: Instance, payres: Command, monkeypatch: pytest.MonkeyPatch, call: str, error: Exception, code: int
) -> None:
    def fail(*_: object, **named: object) -> None:
        raise error

    payer = server.create_wallet(f"payer-{call}-{code}-{type(error).__name__}", deposit="20.00")
    monkeypatch.setattr(Grants, "wait", lambda self, pending, _: approved(server, self, pending))
    monkeypatch.setattr(OutgoingPayments, call, fail)
    app = app_of(server, f"app-{call}-{code}-{type(error).__name__}")
    result = payres("pay", server.wallet("bob"), "5.00", "--from", payer, *app)
    assert (result.exit_code, result.stderr) == (code, f"Error: {error}\n")
    last = """SELECT p.completed_at NOTNULL FROM incoming_payment p JOIN wallet_address w ON w.id = p.wallet_address_id
        WHERE w.path = 'bob' ORDER BY p.id DESC LIMIT 1"""
    is_completed = server.read(lambda work: work.execute(last).fetchone()[0])
    assert is_completed == (code == 1), "a bill that is surely not paid is not left open"


def approved(server: Instance, grants: Grants[httpx2.Client], pending: PendingGrant) -> Grant:
    """The access that is granted without consent."""
    server.approve(pending.redirect)
    found = grants.continue_(pending.continue_uri, pending.continue_token)
    assert isinstance(found, Grant)
    return found


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{base}/alice", "5.00", "--from", "{base}/nobody"], "Error: There is no wallet at {base}/nobody"),
        (["${host}/nobody", "5.00", "--from", "{base}/bob"], "Error: There is no wallet at {base}/nobody"),
        (["{base}/alice", "5,00", "--from", "{base}/bob"], "Error: "),
        (
            ["http://127.0.0.1:1/alice", "5.00", "--from", "{base}/bob"],
            "Error: wallet_address.get at 127.0.0.1:1 was not sent: ",
        ),
        (["https://pay.example/alice", "5.00", "--from", "ftp://pay.example/bob"], "Error: 'ftp://pay.example/bob'"),
        (
            ["http://pay.example/alice", "5.00", "--from", "https://pay.example/bob", "--client", "http://a.example"],
            "Err",
        ),
    ],
)
def test_pay_refuses_in_a_sentence(
    server: Instance, payres: Command, signing: list[str], arguments: list[str], sentence: str
) -> None:
    names = {"base": server.base_url, "host": server.base_url.removeprefix("http://")}
    result = payres("pay", *(one.format_map(names) for one in arguments), *signing)
    assert one_sentence(result).startswith(sentence.format_map(names))


def test_pay_sends_no_escapes_of_servers_to_the_terminal(
    payres: Command, signing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    escapes = "\x1b]0;title\x07\x1b[2K\rPaid\u202e"
    refusal = json.dumps({"error": {"code": escapes, "description": escapes}}).encode()
    monkeypatch.setattr(httpx2.Client, "send", inspect.unwrap(httpx2.Client.send))  # no payres answers like that
    with serving(lambda handler: reply(handler, 400, refusal)) as port:
        url = f"http://127.0.0.1:{port}/"
        assert one_sentence(payres("pay", url, "5.00", "--from", url, *signing)).isprintable()


def test_request(server: Instance, payres: Command, as_json: AsJson) -> None:
    app = app_of(server, "requesting")
    key, wallet = app[:-2], app[-1]
    access = [{"type": "quote", "actions": ["create", "read"]}]
    Path("grant.json").write_text(json.dumps({"client": wallet, "access_token": {"access": access}}))
    granted = as_json("request", "post", f"{server.base_url}/", "--body", "grant.json", *key)
    assert (granted["status"], granted["headers"]["content-type"]) == (200, "application/json")
    Path("token").write_text(granted["body"]["access_token"]["value"])
    result = payres("request", "GET", f"{server.base_url}/quotes/none", "--token-file", "token", *key)
    assert (result.exit_code, result.stderr) == (1, "404 Not Found\n")
    assert json.loads(result.stdout)["error"]["code"] == "not_found"
    assert one_sentence(payres("request", "GET", "nonsense", *key)).endswith("is no URL of http or https")
    for url in ("http://127.0.0.1:9/", "https://a..b/"):
        assert "does not answer" in one_sentence(payres("request", "GET", url, *key))


def test_certificate_that_is_not_trusted_is_called_so(
    payres: Command, signing: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca, tls = privately_issued(tmp_path, "localhost")
    monkeypatch.setattr(httpx2.Client, "send", inspect.unwrap(httpx2.Client.send))  # no payres answers like that
    with serving(lambda handler: reply(handler, 404), tls) as port:
        url = f"https://localhost:{port}/alice"
        commands = ["pay", url, "5.00", "--from", url], ["request", "GET", url]
        for command in commands:
            sentence = one_sentence(payres(*command, *signing))
            assert "the certificate of localhost is not trusted (unable to get local issuer certificate)" in sentence
            assert "SSL_CERT_FILE" in sentence
        monkeypatch.setenv("SSL_CERT_FILE", str(ca))
        assert one_sentence(payres(*commands[0], *signing)) == f"Error: There is no wallet at {url}"
        assert payres(*commands[1], *signing).stderr == "404 Not Found\n"
        monkeypatch.setenv("SSL_CERT_FILE", "none.pem")
        for command in commands:
            assert "No certificates can be read from SSL_CERT_FILE" in one_sentence(payres(*command, *signing))


def message(payres: Command, *options: str, url: str = URL, body: str = BODY) -> str:
    """A signed request as it is sent."""
    headers = payres("sign", "POST", url, "--body", "body.json", *options).stdout
    return f"POST /quotes?a=1 HTTP/1.1\nHost: pay.example\n{headers}\n{body}"


@pytest.mark.parametrize(
    ("replaced", "by", "reason"),
    [
        ("", "", None),
        ("\n", "\r\n", None),
        ("receiver", "Receiver", "digest_mismatch"),
        ("/quotes?a=1 ", "/quotes?a=2 ", "signature_mismatch"),
        ('"@target-uri" ', "", "missing_component"),
        ("k-1", "k-2", "unknown_key"),
        ("Signature: ", "Other: ", "missing_signature"),
        (";created=", ";created=1;was=", "created_too_old"),
    ],
)
def test_verify_what_was_signed(
    payres: Command, signing: list[str], replaced: str, by: str, reason: str | None
) -> None:
    Path("sent.txt").write_text(message(payres, *signing, "--token", "secret").replace(replaced, by), newline="")
    result = payres("verify", "sent.txt", "--jwk", "public.jwk", "--json")
    verdict: Json = json.loads(result.stdout)
    assert (verdict["valid"], verdict.get("reason")) == (reason is None, reason)
    assert result.exit_code == (0 if reason is None else 1)
    if reason != "missing_signature":
        assert verdict["signatureBase"].startswith('"@method": POST\n')


def test_verify_shows_the_base_and_what_is_wrong(payres: Command, signing: list[str], as_json: AsJson) -> None:
    Path("sent.txt").write_text(message(payres, *signing, url=URL.replace("https", "http")))
    result = payres("verify", "sent.txt", "--pem", "private.pem")
    facts = facts_of(result)
    assert (facts["Signature"], facts["Reason"]) == ("refused", "signature_mismatch")
    assert "verifies if @target-uri begins with 'http://pay.example'" in facts["Description"]
    assert f'\n"@target-uri": {URL}\n' in result.stdout
    told = payres("verify", "sent.txt", "--pem", "private.pem", "--url", URL.replace("https", "http"))
    assert (told.exit_code, facts_of(told)["Keyid"]) == (0, "k-1")
    signed = as_json("sign", "GET", URL, *signing)
    assert signed["signatureBase"].startswith(f'"@method": GET\n"@target-uri": {URL}\n')
    assert signed["headers"].keys() == {"Signature-Input", "Signature"}


def test_verify_with_the_keys_of_a_wallet(server: Instance, payres: Command, signing: list[str]) -> None:
    app = app_of(server, "verified")
    Path("sent.txt").write_text(message(payres, *app[:-2]))
    assert payres("verify", "sent.txt", *app[-2:]).exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["sign", "GET", URL, "--key", "private.pem"],
        ["pay", URL, "5.00", "--from", URL, "--key", "private.pem"],
        ["verify", "public.jwk", "--jwk", "public.jwk"],
    ],
)
def test_what_is_missing_is_a_usage_error(payres: Command, signing: list[str], arguments: list[str]) -> None:
    assert payres(*arguments).exit_code == 2
