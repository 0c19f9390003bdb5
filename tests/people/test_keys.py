"""The page of keys: what may be pasted, what it says, and revoking several."""

import base64
import json
from collections.abc import Iterator
from html import unescape

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from payres.core.signatures.jwk import (
    JWK,
    encode_jwk,
    generate_private_key,
    jwk_from_public_bytes,
    private_pem,
    thumbprint,
)
from payres.core.store import audit
from payres.core.store.wallets import KeyRecord, list_keys, require_wallet
from payres.operator import keys
from payres.people.keys import read_key
from tests.accounts.test_factor_pages import sign_in_there, sign_out, turn_on
from tests.helpers import Json, receiver_of, refusal, usd
from tests.instance import Instance
from tests.operator.pages.browser import words_of
from tests.people.browser import PASSWORD, OwnersBrowser, signed_in
from tests.people.test_apps import RECONNECT
from tests.people.test_apps_rules import EXTENSION, ask, new_owner, path_of, pay
from tests.signing_client import Client

PAGE = "/settings/developer-keys"
NUMBERS = iter(range(1, 1000))


@pytest.fixture
def browser(shared: Instance) -> Iterator[OwnersBrowser]:
    path = f"keys-{next(NUMBERS)}"
    shared.create_wallet(path, deposit="100.00")
    with OwnersBrowser(shared, path) as opened:
        yield opened


def new_pair(kid: str) -> tuple[Ed25519PrivateKey, JWK]:
    key = generate_private_key()
    return key, jwk_from_public_bytes(kid, key.public_key().public_bytes_raw())


def as_shown(jwk: JWK) -> str:
    """As the Web Monetization extension shows it."""
    return base64.b64encode(encode_jwk(jwk).encode()).decode()


def valid_keys(instance: Instance, path: str) -> list[KeyRecord]:
    return [*instance.read(lambda work: list_keys(work, require_wallet(work, path).id))]


def test_pasted_key_signs_the_next_request_until_it_is_revoked(shared: Instance, browser: OwnersBrowser) -> None:
    private, jwk = new_pair("a1b2-c3")
    path = shared.wallet(browser.path)
    program = Client(path, private, jwk, shared.base_url, shared.clock, shared.approve)
    assert program.request_grant({"type": "quote", "actions": ["create"]}).status_code == 400
    added = browser.send(PAGE, "add", {"key": as_shown(jwk), "nickname": "  My\tlaptop "})
    assert added.status_code == 303
    assert "My laptop is added." in browser.words(added.headers["location"])
    grant_id, token = ask(program, program, {"debitAmount": usd(2000)})
    pay(program, program, token, receiver_of(shared), 500)
    shown = browser.words(PAGE)
    assert "My laptop Spent USD 5.00 in 30 days. Last used today" in shown
    assert "Stop only its budget, of which USD 15.00 is left" in shown
    assert "My laptop A program with a key of this wallet." in browser.words(f"/account/apps/{grant_id}")
    [key] = valid_keys(shared, browser.path)
    revoked = browser.send(PAGE, "revoke", {"key_id": str(key.id)})
    assert revoked.status_code == 303
    assert "Revoked." in browser.words(revoked.headers["location"])
    body = {"walletAddress": path, "incomingPayment": receiver_of(shared), "debitAmount": usd(100)}
    refusal(program.post("/outgoing-payments", body, token), 401, "invalid_client")
    assert "It was stopped" in browser.words(f"/account/apps/{grant_id}")
    # Once the key is back, its budget is not.
    assert browser.send(PAGE, "add", {"key": as_shown(jwk), "nickname": "My laptop"}).status_code == 303
    refusal(program.post("/outgoing-payments", body, token), 403, "limit_exceeded", reason="revoked_grant")
    program.close()
    done = shared.read(lambda work: audit.AUDIT.list(work, "WHERE actor = ? ORDER BY id", f"owner:{browser.path}"))
    assert [one.action for one in done] == ["key.add", "grant.revoke", "key.revoke", "key.add"]


@pytest.mark.parametrize("members", [{}, EXTENSION], ids=["another program", "extension"])
def test_page_that_revokes_the_key_of_the_extension_says_how_it_goes_on(
    shared: Instance, browser: OwnersBrowser, members: Json
) -> None:
    private, jwk = new_pair("a1b2-c4")
    shared.write(lambda work: keys.add_key(work, browser.path, jwk, "Laptop"))
    program = Client(shared.wallet(browser.path), private, jwk, shared.base_url, shared.clock, shared.approve)
    ask(program, program, {"debitAmount": usd(2000)}, **members)
    program.close()
    [key] = valid_keys(shared, browser.path)
    is_said = [RECONNECT in browser.words(PAGE)]
    revoked = browser.send(PAGE, "revoke", {"key_id": str(key.id)}).headers["location"]
    is_said += [RECONNECT in browser.words(revoked)]
    assert is_said == [members == EXTENSION] * 2


# The same in each run, as all that a test is named by.
FIXED = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(4)]
JWK_A = jwk_from_public_bytes("key-a", FIXED[0].public_key().public_bytes_raw())
JWK_B = jwk_from_public_bytes("key-b", FIXED[1].public_key().public_bytes_raw())
PEM = FIXED[2].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
PUBLIC = json.loads(encode_jwk(JWK_A))
READ = {
    "base64": as_shown(JWK_A),
    "base64 on lines": "\n".join(as_shown(JWK_A)[n : n + 20] for n in range(0, 400, 20)),
    "base64url": as_shown(JWK_A).replace("+", "-").replace("/", "_").rstrip("="),
    "JSON": f"\n {json.dumps(PUBLIC, indent=2)} ",
    "set of one": json.dumps({"keys": [PUBLIC]}),
    "base64 of a set": base64.b64encode(json.dumps({"keys": [PUBLIC]}).encode()).decode(),
}


@pytest.mark.parametrize("name", READ)
def test_key_is_read_as_apps_show_it(name: str) -> None:
    assert read_key(READ[name]) == JWK_A


def test_pem_gets_its_thumbprint_for_an_id() -> None:
    jwk = read_key(f"\n{PEM}\n")
    assert jwk == read_key(base64.b64encode(PEM.encode()).decode())
    assert jwk.kid == thumbprint(jwk)


PRIVATE = private_pem(FIXED[3]).decode()
RSA = generate_rsa(65537, 1024).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
SECRET: Json = PUBLIC | {"d": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"}
WHOLE, PRIVATE_SAID = "This is not a whole key.", "This is a private key"
REFUSED = [
    ("", WHOLE, 400),
    ("garbage \u202e<b>", WHOLE, 400),
    ("🔑" * 500, WHOLE, 400),
    (as_shown(JWK_A)[:-9], WHOLE, 400),
    ("{" * 3000, WHOLE, 400),
    ('{"keys": []}', WHOLE, 400),
    ('["a"]', WHOLE, 400),
    (json.dumps(PUBLIC | {"kid": "\u00e4"}), WHOLE, 400),
    (json.dumps(PUBLIC | {"kid": None}), WHOLE, 400),
    (PEM[:60], WHOLE, 400),
    (json.dumps({"keys": [PUBLIC, PUBLIC]}), "These are several keys.", 400),
    (json.dumps({"kty": "RSA", "kid": "r", "n": "x", "e": "AQAB"}), "This key is of another kind.", 400),
    (RSA, "This key is of another kind.", 400),
    (json.dumps(SECRET), PRIVATE_SAID, 400),
    (base64.b64encode(json.dumps(SECRET).encode()).decode(), PRIVATE_SAID, 400),
    *((base64.b64encode(json.dumps(SECRET).encode()).decode()[:-cut], PRIVATE_SAID, 400) for cut in range(2, 6)),
    (json.dumps({"kty": "oct", "k": "nWGxne"}), PRIVATE_SAID, 400),
    (json.dumps({"keys": [SECRET]}), PRIVATE_SAID, 400),
    (json.dumps(SECRET)[:-3], PRIVATE_SAID, 400),
    (PRIVATE, PRIVATE_SAID, 400),
    (PRIVATE.splitlines()[1], PRIVATE_SAID, 400),
    (base64.b64encode(PRIVATE.encode()).decode(), PRIVATE_SAID, 400),
]


@pytest.mark.parametrize(("text", "says", "status"), REFUSED, ids=map(str, range(len(REFUSED))))
def test_what_is_no_public_key_is_refused_at_its_field(
    shared: Instance, browser: OwnersBrowser, text: str, says: str, status: int
) -> None:
    answer = browser.send(PAGE, "add", {"key": text, "nickname": "My laptop"})
    assert answer.status_code == status, answer.text
    assert says in words_of(answer)
    assert "<title>Error: keys" in answer.text
    assert "<b>" not in answer.text.partition("<textarea")[2].partition("</textarea>")[0]
    assert valid_keys(shared, browser.path) == []
    for secret in ("nWGxne", "MC4CAQAw", base64.b64encode(PRIVATE.encode()).decode()[:40]):
        assert secret not in answer.text
        assert not [line for line in shared.requests if secret in line]


@pytest.mark.parametrize("text", [as_shown(JWK_A), json.dumps(SECRET), PRIVATE], ids=["public", "jwk", "pem"])
def test_key_and_its_name_wait_for_a_sign_in_but_no_private_one(shared: Instance, text: str) -> None:
    with signed_in(shared, f"keys-{next(NUMBERS)}") as owner:
        fields = {"csrf": owner.csrf, "choice": "add", "key": text, "nickname": "My laptop"}
        sign_out(shared, owner)
        asked = owner.http.post(PAGE, data=fields)
        assert "What you typed is kept." in words_of(asked)
        again = sign_in_there(asked, owner.http, wallet=owner.path, password=PASSWORD)
        assert 'value="My laptop"' in again.text
        kept = unescape(again.text.partition("<textarea")[2].partition(">")[2].partition("</textarea>")[0])
        assert kept == (text if text == as_shown(JWK_A) else "")
        for secret in ("nWGxne", "MC4CAQAw"):
            assert secret not in asked.text + again.text
        assert valid_keys(shared, owner.path) == []


def test_second_step_is_asked_for_without_a_private_key(payres: Instance) -> None:
    with signed_in(payres, f"keys-{next(NUMBERS)}") as owner:
        turn_on(owner)
        payres.clock.advance(301)
        asked = owner.send(PAGE, "add", {"key": json.dumps(SECRET), "nickname": "My laptop"})
        assert 'name="of.nickname" value="My laptop"' in asked.text
        assert "nWGxne" not in asked.text


def test_nicknames_are_shown_as_text_and_a_key_is_added_once(shared: Instance, browser: OwnersBrowser) -> None:
    for name in ("", " \u200b ", "n" * 61):
        answer = browser.send(PAGE, "add", {"key": as_shown(JWK_A), "nickname": name})
        assert "Give it a name of 1 to 60 characters." in words_of(answer)
    evil = '<img src=x onerror="a()">\u202e'
    assert browser.send(PAGE, "add", {"key": as_shown(JWK_A), "nickname": evil}).status_code == 303
    page = browser.http.get(PAGE).text
    assert "<img" not in page
    assert "\u202e" not in page
    again = browser.send(PAGE, "add", {"key": as_shown(JWK_A), "nickname": "Again"})
    assert again.status_code == 409
    assert "You have this key already: <img src=x" in words_of(again)
    other = as_shown(jwk_from_public_bytes(JWK_A.kid, generate_private_key().public_key().public_bytes_raw()))
    taken = browser.send(PAGE, "add", {"key": other, "nickname": "Other"})
    assert (taken.status_code, other in taken.text, "another key with the same id" in words_of(taken)) == (
        409,
        True,
        True,
    )


def test_keys_are_revoked_several_at_once_and_only_the_wallets_own(shared: Instance, browser: OwnersBrowser) -> None:
    other = new_owner(shared)
    added = [new_pair(f"k{number}")[1] for number in range(32)]
    shared.write(lambda work: [keys.add_key(work, browser.path, jwk, jwk.kid) for jwk in added])
    full = browser.send(PAGE, "add", {"key": as_shown(JWK_B), "nickname": "One more"})
    assert "keys, and that is the most" in words_of(full)
    found = [key.id for key in valid_keys(shared, browser.path)]
    [foreign] = [key.id for key in valid_keys(shared, path_of(other))]
    for ids in ([found[0], foreign], [10**17], ["x"], ["²"], ["1" * 400]):
        assert browser.send(PAGE, "revoke", {"key_id": ids}).status_code == 404
    none = browser.send(PAGE, "revoke")
    assert (none.status_code, "Mark the keys to revoke first." in words_of(none)) == (400, True)
    for _ in range(2):  # the second changes nothing
        assert browser.send(PAGE, "revoke", {"key_id": found[:20]}).status_code == 303
    assert [key.id for key in valid_keys(shared, browser.path)] == found[20:]
    assert len(valid_keys(shared, path_of(other))) == 1
