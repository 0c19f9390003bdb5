import json
import stat
from base64 import b64encode, encodebytes, urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from payres.core.signatures.jwk import generate_private_key, jwk_from_pem, parse_jwk, private_pem
from payres.core.store.wallets import find_key
from payres.core.store.work import Transaction
from tests.cli.conftest import CREATE, AsJson, Command, rows_of


@pytest.fixture(autouse=True)
def alice(payres: Command) -> None:
    payres(*CREATE)


def test_generate_keeps_the_public_half_and_writes_the_private_one(
    as_json: AsJson, database: Path, tx: Transaction
) -> None:
    made = as_json("key", "generate", "alice", "--out", "private.pem", "--kid", "app")
    private = database.parent / "private.pem"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert made["privateKey"] == "private.pem"
    assert made["walletAddress"] == "http://127.0.0.1:8080/alice"
    assert parse_jwk(made["jwk"]) == jwk_from_pem("app", private.read_bytes())
    assert find_key(tx, "alice", "app") == made["jwk"]["x"]
    made_up = {as_json("key", "generate", "alice", "--out", f"{number}.pem")["kid"] for number in range(2)}
    assert len(made_up) == 2


def test_generate_never_writes_over_a_file_and_then_stores_nothing(
    payres: Command, as_json: AsJson, database: Path
) -> None:
    (database.parent / "private.pem").write_text("precious")
    result = payres("key", "generate", "alice", "--out", "private.pem")
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: private.pem exists already, and a key is never replaced; choose another name\n",
    )
    assert (database.parent / "private.pem").read_text() == "precious"
    assert as_json("key", "list", "alice") == {"keys": []}


def test_generate_for_a_kid_in_force_writes_no_file(payres: Command, database: Path) -> None:
    payres("key", "generate", "alice", "--out", "one.pem", "--kid", "app")
    for wallet, sentence in (("alice", "has a valid key app"), ("bob", "There is no wallet bob")):
        result = payres("key", "generate", wallet, "--out", "other.pem", "--kid", "app")
        assert (result.exit_code, sentence in result.stderr) == (1, True)
    assert not (database.parent / "other.pem").exists()


def test_add_takes_a_pem(payres: Command, as_json: AsJson, database: Path) -> None:
    pem = private_pem(generate_private_key())
    (database.parent / "key.pem").write_bytes(pem)
    assert as_json("key", "add", "alice", "--pem", "key.pem", "--kid", "app")["jwk"]["x"] == jwk_from_pem("app", pem).x
    assert rows_of(payres("key", "list", "alice"))[1][:2] == ["app", "valid"]


# Base64 is how the Web Monetization extension shows its key: btoa(JSON.stringify(jwk)).
WRITTEN: dict[str, Callable[[bytes], bytes]] = {
    "JSON": bytes,
    "JSON in lines": lambda text: b"\n  " + text.replace(b",", b",\n  ") + b"\n",
    "base64": b64encode,
    "base64 with a line end": lambda text: b64encode(text) + b"\n",
    "base64 in lines": encodebytes,
    "base64 without padding": lambda text: b64encode(text).rstrip(b"="),
    "base64url": urlsafe_b64encode,
}


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_add_takes_a_jwk_as_people_pass_it_on(
    payres: Command, as_json: AsJson, database: Path, written: Callable[[bytes], bytes]
) -> None:
    x = jwk_from_pem("app", private_pem(generate_private_key())).x
    for number, given in enumerate(("file", "-", "itself")):
        # The kid makes the base64 have each length of padding, and characters of only one of the two alphabets.
        jwk = {"kid": f"app>>>???{'~' * number}", "kty": "OKP", "crv": "Ed25519", "x": x, "alg": "EdDSA"}
        text = written(json.dumps(jwk, separators=(",", ":")).encode()).decode()
        (database.parent / "file").write_text(text)
        result = payres("key", "add", "alice", "--jwk", text if given == "itself" else given, "--json", input=text)
        assert result.exit_code == 0, result.stderr
        added = json.loads(result.stdout)
        assert (added["kid"], added["jwk"]["x"]) == (jwk["kid"], x)
    assert len(as_json("key", "list", "alice")["keys"]) == 3


def test_key_has_a_name_that_only_the_operator_sees(payres: Command, as_json: AsJson, tx: Transaction) -> None:
    text = json.dumps({"kid": "app", "kty": "OKP", "crv": "Ed25519", "x": "A" * 43})
    add = ("key", "add", "alice", "--jwk", text)
    first = as_json(*add)
    assert first["name"] is None
    assert as_json(*add) == first
    named = as_json(*add, "--name", "Firefox")
    assert named == as_json(*add) == first | {"name": "Firefox"}
    assert "Firefox" not in json.dumps(named["jwk"])
    assert rows_of(payres("key", "list", "alice"))[1][:3] == ["app", "Firefox", "valid"]
    assert as_json(*add, "--name", "Chromium")["name"] == "Chromium"
    assert payres(*add, "--name", "two\nlines").stderr == "Error: A key's name has 1 to 200 printable characters\n"


@pytest.mark.parametrize(
    ("options", "status", "sentence"),
    [
        (["--jwk", "bm90IGEga2V5"], 2, "'bm90IGEga2V5' is neither a file nor a JWK: give a file, - for standard input"),
        (["--jwk", b64encode(b'{"kid": "app"}').decode()], 1, "The key cannot be used"),
        (["--jwk", '{"kid": "app"}'], 1, '{"kty": "OKP", "crv": "Ed25519", "kid": "..."'),
        (["--jwk", "key.jwk", "--kid", "app"], 2, "leave --kid out"),
        (["--pem", "key.pem"], 2, "give one with --kid"),
        ([], 2, "--jwk FILE, or --pem FILE"),
        (["--jwk", "key.jwk", "--pem", "key.pem"], 2, "--jwk FILE, or --pem FILE"),
        (["--jwk", "missing.jwk"], 2, "missing.jwk"),
        (["--jwk", "key.jwk"], 1, "The key cannot be used"),
        (["--pem", "key.pem", "--kid", "app"], 1, "The key cannot be used"),
    ],
)
def test_add_says_what_is_wrong_with_the_key(
    payres: Command, database: Path, options: list[str], status: int, sentence: str
) -> None:
    (database.parent / "key.jwk").write_text('{"kid": "app"}')
    (database.parent / "key.pem").write_text("-----BEGIN NOTHING-----")
    result = payres("key", "add", "alice", *options)
    assert (result.exit_code, result.stdout) == (status, "")
    assert sentence in result.stderr


def test_add_refuses_a_private_jwk_without_repeating_it(payres: Command, database: Path) -> None:
    (database.parent / "key.jwk").write_text(
        '{"kid": "app", "kty": "OKP", "crv": "Ed25519", "x": "' + "A" * 43 + '", "d": "hush"}'
    )
    text = (database.parent / "key.jwk").read_text()
    for given in ("key.jwk", text, b64encode(text.encode()).decode()):
        result = payres("key", "add", "alice", "--jwk", given)
        assert result.exit_code == 1
        assert "private member" in result.stderr
        assert "hush" not in result.output
