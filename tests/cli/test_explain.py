import json
import re
import socket
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import Result

from payres.cli.explain import endpoint_errors
from payres.clock import format_time
from payres.signatures.base import Message
from payres.signatures.jwk import generate_private_key, jwk_from_pem, private_pem
from payres.signatures.sign import sign
from payres.testing.instance import Instance
from tests.cli.conftest import Command
from tests.helpers import TIMEOUT

DOCUMENT = (Path(__file__).parents[2] / "docs" / "integrating.md").read_text(encoding="utf-8")
BASE = "https://pay.example"
GNAP = (b"authorization", b"GNAP token")
CREATED = 1_763_703_600  # 2025-11-21T05:40:00Z
AT = "2025-11-21T05:40:12Z"
KEY = generate_private_key()
PEM = private_pem(KEY)
JWK = jwk_from_pem("app", PEM)


def raw_request(
    method: str = "GET",
    target: str = "/quotes/1",
    body: bytes = b"",
    base_url: str = BASE,
    created: int = CREATED,
    header: tuple[str, str] = ("content-type", "application/json"),
) -> bytes:
    """A request as `sign` signs it for the server at `base_url`."""
    headers = [("authorization", "GNAP token"), header]
    lines = [(name.encode(), value.encode()) for name, value in headers]
    signed = sign(Message(method, base_url + target, lines, body), KEY.sign, "app", created)
    head = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in (*headers, *signed.items())), "", ""]
    return "\r\n".join(head).encode() + body


@pytest.fixture
def files(database: Path) -> Path:
    """A working directory with a key as JWK and as PEM, and a right request."""
    directory = database.parent
    (directory / "app.jwk").write_text(json.dumps({"kid": "app", "kty": "OKP", "crv": "Ed25519", "x": JWK.x}))
    (directory / "app.pem").write_bytes(PEM)
    (directory / "request.txt").write_bytes(raw_request())
    return directory


def explain(payres: Command, *arguments: str, **options: Any) -> Result:
    return payres("explain", *arguments, "--base-url", BASE, "--at", AT, **options)


@pytest.mark.parametrize("key", [["--jwk", "app.jwk"], ["--pem", "app.pem", "--kid", "app"]])
@pytest.mark.usefixtures("files")
def test_right_request_is_accepted_without_a_database(payres: Command, database: Path, key: list[str]) -> None:
    result = explain(payres, "request.txt", *key)
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"   GET {BASE}/quotes/1\n" in result.stdout
    assert '   | "@method": GET\n' in result.stdout
    assert "   created     1763703600\n" in result.stdout
    assert "FAIL" not in result.stdout
    assert result.stdout.endswith("Verdict\n   accepted: The signature sig1 is one by the key app.\n")
    assert not database.exists()


@pytest.mark.parametrize("source", [[], ["-"]])
@pytest.mark.usefixtures("files")
def test_request_is_read_from_standard_input(payres: Command, source: list[str]) -> None:
    assert explain(payres, *source, "--jwk", "app.jwk", input=raw_request().decode()).exit_code == 0


@pytest.mark.usefixtures("files")
def test_refused_request_is_explained(payres: Command, files: Path) -> None:
    (files / "request.txt").write_bytes(raw_request(base_url="http://pay.example"))
    result = explain(payres, "request.txt", "--jwk", "app.jwk")
    assert (result.exit_code, result.stderr) == (1, "")
    assert "   FAIL  verification  the signature is not one by app over this base\n" in result.stdout
    assert "Verdict\n   refused, signature_mismatch: " in result.stdout
    assert (
        "Likely cause\n   - The signature verifies when the target is http://pay.example/quotes/1, so" in result.stdout
    )


def test_json_is_one_object_with_the_words_for_programs(payres: Command, files: Path) -> None:
    (files / "request.txt").write_bytes(raw_request("POST", "/quotes", b'{"a": 1}').replace(b'{"a": 1}', b'{"a":1} '))
    result = explain(payres, "request.txt", "--jwk", "app.jwk", "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert (told["accepted"], told["reason"]) == (False, "digest_mismatch")
    assert [cause["cause"] for cause in told["causes"]] == ["body_rewritten"]
    assert (told["method"], told["targetUri"], told["bodyLength"]) == ("POST", f"{BASE}/quotes", 8)
    assert told["at"] == "2025-11-21T05:40:12.000Z"
    assert told["key"] == {"kid": "app", "x": JWK.x}
    assert {rule["rule"] for rule in told["rules"] if rule["holds"] is False} == {"digest"}
    assert told["signature"]["parameters"][0] == {"name": "keyid", "value": '"app"'}
    assert told["signatureBase"].startswith(f'"@method": POST\n"@target-uri": {BASE}/quotes\n')
    assert {"name": "authorization", "value": "GNAP token"} in told["headers"]


@pytest.mark.usefixtures("files")
def test_old_request_is_refused_for_its_age_alone(payres: Command) -> None:
    result = payres("explain", "request.txt", "--jwk", "app.jwk", "--base-url", BASE, "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["reason"]) == (1, "created_too_old")
    assert {rule["rule"] for rule in told["rules"] if not rule["holds"]} == {"freshness"}
    assert "--at 2025-11-21T05:40:00Z" in told["causes"][-1]["description"]


@pytest.mark.usefixtures("files")
def test_age_that_the_settings_allow_is_allowed(payres: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAYRES_SIGNATURE_MAX_AGE", "5")
    assert "12 s old, and 5 s are allowed" in explain(payres, "request.txt", "--jwk", "app.jwk").stdout


TEXT = ("content-type", "text/plain")


@pytest.mark.parametrize(
    ("method", "target", "header", "reason"),
    [
        ("POST", "/quotes", TEXT, "unsupported_media_type"),
        ("POST", "/incoming-payments/?x", TEXT, "unsupported_media_type"),
        ("POST", "/continue/1", ("content-type", "application/json-patch"), "unsupported_media_type"),
        ("POST", "/", TEXT, "unsupported_media_type"),
        ("POST", "/incoming-payments/1/complete", TEXT, None),
        ("POST", "/quotes", ("content-type", "Application/JSON ; charset=utf-8"), None),
        ("GET", "/quotes/1", ("accept", "text/html, */*;q=0.1"), None),
        ("GET", "/quotes/1", ("accept", "text/html"), "not_acceptable"),
        ("DELETE", "/token/1", ("accept", "*/*;q=0"), "not_acceptable"),
        ("GET", "/interact/1/2", ("accept", "text/html"), None),
    ],
)
def test_media_type_that_the_server_does_not_take_is_named(
    payres: Command, files: Path, method: str, target: str, header: tuple[str, str], reason: str | None
) -> None:
    body = b"{}" if method == "POST" else b""
    (files / "request.txt").write_bytes(raw_request(method, target, body, header=header))
    result = explain(payres, "request.txt", "--jwk", "app.jwk", "--json")
    told = json.loads(result.stdout)
    assert (told["accepted"], told["reason"], result.exit_code) == (reason is None, reason, int(reason is not None))
    assert [cause["cause"] for cause in told["causes"]] == (["one_rule"] if reason else [])


def test_encoded_body_that_the_server_does_not_take_is_named(payres: Command, files: Path) -> None:
    request = raw_request("POST", "/quotes", b"{}")
    for coding, reason in (("gzip", "unsupported_media_type"), ("identity", None)):
        header = f"content-encoding: {coding}\r\nsignature:".encode()
        (files / "request.txt").write_bytes(request.replace(b"signature:", header, 1).replace(b"Signature:", header, 1))
        told = json.loads(explain(payres, "request.txt", "--jwk", "app.jwk", "--json").stdout)
        assert told["reason"] == reason
        assert {"name": "content-encoding", "value": coding} in told["headers"]


def test_key_may_be_given_itself(payres: Command, files: Path) -> None:
    text = (files / "app.jwk").read_bytes()
    for given in (text.decode(), b64encode(text).decode()):
        assert explain(payres, "request.txt", "--jwk", given).exit_code == 0


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("arguments", [(), ("--kid", "app")])
def test_keys_must_be_named_in_one_of_three_ways(payres: Command, arguments: tuple[str, ...]) -> None:
    result = explain(payres, "request.txt", *arguments)
    assert result.exit_code == 2
    assert "--wallet PATH" in result.stderr
    assert "--jwk FILE" in result.stderr
    assert "--pem FILE" in result.stderr


def test_keys_of_a_wallet_are_tried(payres: Command, files: Path) -> None:
    payres("wallet", "create", "app", "--asset", "USD", "--scale", "2", "--create")
    payres("key", "generate", "app", "--out", "other.pem", "--kid", "other")
    assert "valid keys: other" in explain(payres, "request.txt", "--wallet", "app").stdout
    payres("key", "add", "app", "--jwk", "app.jwk")
    assert explain(payres, "request.txt", "--wallet", f"{BASE}/app").exit_code == 0
    (files / "request.txt").write_bytes(raw_request().replace(b'keyid="app"', b'keyid="other"'))
    assert "the key is app" not in explain(payres, "request.txt", "--wallet", "app").stdout  # keyid is signed too

    (files / "request.txt").write_bytes(raw_request())
    payres("key", "revoke", "app", "app")
    revoked = explain(payres, "request.txt", "--wallet", "app").stdout
    assert "refused, unknown_key" in revoked
    assert re.search(r"The signature verifies with the key app, which was revoked at 2\S+Z, so sign with", revoked)


@pytest.mark.usefixtures("files")
def test_keys_of_an_inactive_wallet_do_not_count(payres: Command) -> None:
    payres("wallet", "create", "app", "--asset", "USD", "--scale", "2", "--create")
    payres("key", "add", "app", "--jwk", "app.jwk")
    payres("wallet", "deactivate", "app")
    result = explain(payres, "request.txt", "--wallet", "app")
    assert result.exit_code == 1
    assert "the key app, which belongs to a wallet that is not active, so sign" in result.stdout


@pytest.mark.usefixtures("files")
def test_what_a_terminal_would_act_upon_is_written_out(payres: Command, files: Path) -> None:
    (files / "request.txt").write_bytes(raw_request().replace(b"GNAP token", b"GNAP \x1b[31m\xc2\x9b\xff"))
    result = explain(payres, "request.txt", "--jwk", "app.jwk")
    assert r"authorization: GNAP \x1b[31m\x9b\xff" in result.stdout
    assert all(char.isprintable() or char == "\n" for char in result.stdout)


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["request.txt"], 2, "--jwk FILE, or --pem FILE"),
        (["request.txt", "--pem", "app.pem"], 2, "give one with --kid"),
        (["request.txt", "--wallet", "app", "--jwk", "app.jwk"], 2, "Give either --wallet, or a key"),
        (["request.txt", "--wallet", "app"], 1, "There is no database"),
        (["request.txt", "--jwk", "request.txt"], 1, "The key cannot be used"),
        (["missing.txt", "--jwk", "app.jwk"], 2, "missing.txt"),
        (["app.pem", "--jwk", "app.jwk"], 1, "The first line must be like POST /quotes HTTP/1.1"),
        (["-", "--jwk", "-"], 2, "standard input"),
        (
            ["request.txt", "--jwk", "app.jwk", "--at", "yesterday"],
            2,
            "name a day such as 2026-01-31, or a time:",
        ),
        (["request.txt", "--jwk", "app.jwk", "--base-url", "ftp://a"], 1, "must be an http or https origin"),
    ],
)
@pytest.mark.usefixtures("files")
def test_what_cannot_be_explained_is_said_in_a_sentence(
    payres: Command, arguments: list[str], status: int, sentence: str
) -> None:
    result = payres("explain", *arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    assert sentence in result.stderr


def test_example_of_the_documents_works(payres: Command, database: Path) -> None:
    section = re.search(r"^### When a signature is rejected$(.*?)(?=^## )", DOCUMENT, re.M | re.S)
    assert section is not None
    shown = dict(re.findall(r"^```(\w*)\n(.*?)^```$", section[1], re.M | re.S))
    (database.parent / "request.txt").write_text(shown["http"])
    (database.parent / "public.jwk").write_text(shown["json"])
    result = payres(*shown[""].split()[1:])
    assert result.exit_code == 1
    assert result.stdout.endswith(shown["text"])


def answer_to(instance: Instance, raw: bytes) -> dict[str, Any]:
    """The body of the server's answer to just these bytes."""
    address = urlsplit(instance.base_url)
    assert address.hostname is not None
    assert address.port is not None
    closing = raw.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    with socket.create_connection((address.hostname, address.port), timeout=TIMEOUT) as connection:
        connection.sendall(closing)
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    told: dict[str, Any] = json.loads(received.partition(b"\r\n\r\n")[2])
    return told


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "as it is": lambda raw: raw,
    "a changed target": lambda raw: raw.replace(b" /quotes ", b" /quotes/ "),
    "a changed body": lambda raw: raw.replace(b"{}", b"[]"),
    "a changed signature": lambda raw: re.sub(b"(?<=\nSignature: sig1=:)....", b"AAAA", raw),
    "no digest": lambda raw: re.sub(b"Content-Digest: [^\r]*\r\n", b"", raw),
    "no signature": lambda raw: re.sub(b"Signature: [^\r]*\r\n", b"", raw),
    "another scheme": lambda raw: raw.replace(b"GNAP ", b"Bearer "),
    "another kid": lambda raw: raw.replace(b'keyid="', b'keyid="x'),
    "created in milliseconds": lambda raw: re.sub(rb"created=(\d+)", rb"created=\g<1>000", raw),
    "a repeated header": lambda raw: raw.replace(b"\r\nContent-", b"\r\nAuthorization: GNAP x\r\nContent-", 1),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_explanation_gives_the_reason_that_the_server_gives(
    payres: Command, shared: Instance, database: Path, spoil: Callable[[bytes], bytes]
) -> None:
    client, now = shared.client, shared.clock.now()
    headers = [
        ("host", urlsplit(shared.base_url).netloc),
        ("authorization", f"GNAP {client.grant({'type': 'quote', 'actions': ['create']})}"),
        ("content-type", "application/json"),
    ]
    message = Message("POST", f"{shared.base_url}/quotes", [(n.encode(), v.encode()) for n, v in headers], b"{}")
    signed = sign(message, client.private_key.sign, client.jwk.kid, now // 1_000_000)
    lines = ["POST /quotes HTTP/1.1", *(f"{name}: {value}" for name, value in (*headers, *signed.items())), "", "{}"]
    raw = spoil("\r\n".join(lines).encode())
    (database.parent / "request.txt").write_bytes(raw)

    error = answer_to(shared, raw)["error"]
    served = shared.context.settings
    arguments = ["--base-url", served.base_url, "--database", served.database, "--at", format_time(now), "--json"]
    told = json.loads(payres("explain", "request.txt", "--wallet", client.wallet_address, *arguments).stdout)

    accepted = error["code"] == "invalid_request"  # by then the signature had been accepted
    assert told["accepted"] == accepted
    assert told["reason"] == error.get("details", {}).get("reason")
    assert told["signatureBase"] == error.get("details", {}).get("signatureBase", told["signatureBase"])
    assert not (accepted and told["causes"])


# What endpoints ask before they look at a signature


@pytest.mark.parametrize(
    ("method", "target", "reason"),
    [
        ("GET", "/quotes/1", "missing_token"),
        ("GET", "/quotes/1/", "missing_token"),
        ("GET", "/incoming-payments?wallet-address=x", "missing_token"),
        ("POST", "/incoming-payments", "missing_token"),
        ("POST", "/incoming-payments/1/complete", "missing_token"),
        ("GET", "/outgoing-payment-grant", "missing_token"),
        ("DELETE", "/continue/1", "missing_token"),
        ("GET", "/incoming-payments/1", None),
        ("HEAD", "/incoming-payments/1?x=y", None),
        ("POST", "/", None),
        ("POST", "/token/1", None),
        ("GET", "/alice", None),
    ],
)
def test_token_is_missed_where_the_server_misses_it(method: str, target: str, reason: str | None) -> None:
    errors = [error.reason for error in endpoint_errors(Message(method, BASE + target, []))]
    assert errors == ([reason] if reason else [])
    assert endpoint_errors(Message(method, BASE + target, [GNAP])) == []


@pytest.mark.parametrize("value", [b"Bearer token", b"GNAP", b"GNAP ", b"token", b""])
def test_other_authorization_is_no_token_even_where_none_is_needed_to_read(value: bytes) -> None:
    errors = endpoint_errors(Message("GET", f"{BASE}/incoming-payments/1", [(b"authorization", value)]))
    assert [error.reason for error in errors] == ["missing_token"]


def test_errors_come_in_the_order_in_which_the_server_looks() -> None:
    headers = [(b"accept", b"text/html"), (b"content-type", b"text/plain")]
    errors = endpoint_errors(Message("POST", f"{BASE}/quotes", headers, b"{}"))
    assert [error.reason for error in errors] == ["not_acceptable", "unsupported_media_type", "missing_token"]
