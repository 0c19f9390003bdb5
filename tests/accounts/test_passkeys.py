"""What a passkey may be and sign: by an authenticator in software, which also answers wrongly."""

import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from payres.accounts import passkeys
from payres.accounts.limits import MAX_PASSKEYS
from payres.accounts.passkeys import PasskeySecret
from payres.accounts.second_factors import remove_step
from payres.accounts.second_step import SIGN_IN
from payres.accounts.store import mail
from payres.accounts.store.kinds import Kind
from payres.accounts.store.owners import OF_OWNERS
from payres.accounts.store.passkeys import PASSKEY_TABLE, PasskeyRecord, passkeys_of
from payres.core.process.settings import Settings
from payres.core.protocol.clock import MINUTE
from payres.core.protocol.errors import InvalidRequest, NotFound, WrongState
from payres.core.protocol.identifiers import base64url
from payres.core.protocol.urls import Urls
from payres.core.store import connections
from payres.core.store.work import Work
from payres.operator.store.operators import OF_OPERATORS, put_operator
from payres.operator.wallets import create_wallet
from tests.accounts.authenticator import BS, UP, UV, Authenticator, decoded
from tests.helpers import Json
from tests.works import NOW, savepoint, work_at

ORIGIN = "http://localhost:8080"
BROWSER = "the secret of this browser"
ID = 1
SECRET = PasskeySecret(bytes(32))
MUTATIONS = int(os.environ.get("FUZZ_CASES", "2000")) // 5  # 20,000 in `make torture`


@pytest.fixture
def work() -> Iterator[Work]:
    """A unit of a server at ORIGIN, with an owner and an operator with ID."""
    with closing(connections.connect_writer(":memory:")) as connection:
        opened = work_at(connection, NOW, Settings(base_url=ORIGIN))
        create_wallet(opened, "alice", "USD", 2, None, "hash")
        put_operator(opened, "alice", "full", "hash", NOW)
        yield opened


def later(work: Work, by: int) -> Work:
    return work_at(work, NOW + by, Settings(base_url=ORIGIN))


def to_add(work: Work, kind: Kind = OF_OWNERS, browser: str = BROWSER) -> str:
    account = SimpleNamespace(id=ID, name="alice")
    return passkeys.options_to_add(work, kind, account, SECRET, browser, "Harbour")


def add(
    work: Work, answer: object, kind: Kind = OF_OWNERS, browser: str = BROWSER, name: str = " Pixel\u202e 9 "
) -> PasskeyRecord:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    passkeys.add_passkey(work, kind, kind.accounts.by_id(work, ID), name, text, SECRET, browser)
    return passkeys_of(work, kind, ID)[-1]


def to_sign(kind: Kind = OF_OWNERS, purpose: str = SIGN_IN, at: int = NOW) -> str:
    challenge = SECRET.challenge(kind, BROWSER, purpose, at)
    return json.dumps({"challenge": base64url(challenge), "rpId": "localhost"})


def use(
    work: Work, answer: object, kind: Kind = OF_OWNERS, browser: str = BROWSER, purpose: str = SIGN_IN
) -> PasskeyRecord:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return passkeys.use(work, kind, passkeys.verify(work, kind, text, SECRET, browser, purpose))


def added(work: Work, kind: Kind = OF_OWNERS, **options: Any) -> Authenticator:
    device = Authenticator(ORIGIN, **options)
    add(work, device.register(to_add(work, kind)), kind)
    return device


@pytest.mark.parametrize("algorithm", passkeys.ALGORITHMS)
@pytest.mark.parametrize("kind", [OF_OWNERS, OF_OPERATORS])
def test_passkey_is_added_and_signs(work: Work, kind: Kind, algorithm: int) -> None:
    device = Authenticator(ORIGIN, algorithm)
    made = add(work, device.register(to_add(work, kind)), kind)
    assert (made.name, made.transports, made.last_used_at) == ("Pixel 9", ["hybrid", "internal"], None)
    for count in (1, 2):
        used = use(work, device.sign(to_sign(kind), flags=UP | UV | BS), kind)
        assert (used.id, used.sign_count, used.is_backed_up, used.last_used_at) == (made.id, count, 1, NOW)
        assert not used.suspect_at


def test_options_ask_for_what_is_verified_and_for_no_second_one_of_a_device(work: Work) -> None:
    device = added(work)
    asked = json.loads(to_add(work))
    assert asked["authenticatorSelection"] == {
        "residentKey": "required",
        "requireResidentKey": True,
        "userVerification": "required",
    }
    assert asked["attestation"] == "none"
    assert [one["alg"] for one in asked["pubKeyCredParams"]] == [-7, -8, -257]
    [known] = asked["excludeCredentials"]
    assert known["id"] == base64url(device.credential_id)


def test_user_handle_is_the_same_for_an_account_and_another_for_each(work: Work) -> None:
    handles = {json.loads(to_add(work, kind))["user"]["id"] for kind in (OF_OWNERS, OF_OPERATORS) for _ in range(2)}
    assert len(handles) == 2
    assert SECRET.user_handle(OF_OWNERS, 2) != SECRET.user_handle(OF_OWNERS, ID)


WRONG_CLIENTS: dict[str, Json] = {
    "the origin of another port": {"origin": "http://localhost:8081"},
    "the origin of a subdomain": {"origin": "http://a.localhost:8080"},
    "the origin with a slash": {"origin": f"{ORIGIN}/"},
    "a frame of another site": {"crossOrigin": True},
    "a frame of another site, not as a boolean": {"crossOrigin": "false"},
    "another type": {"type": "payment.get"},
    "no challenge": {"challenge": ""},
    "a challenge that nobody made": {"challenge": base64url(bytes(56))},
    "a challenge that is a number": {"challenge": 1},
    "without user verification": {"flags": UP},
    "without the user": {"flags": UV},
}


@pytest.mark.parametrize("wrong", WRONG_CLIENTS.values(), ids=WRONG_CLIENTS)
def test_wrong_answer_adds_nothing_and_signs_nobody_in(work: Work, wrong: Json) -> None:
    device = Authenticator(ORIGIN)
    with pytest.raises(InvalidRequest):
        add(work, device.register(to_add(work), **wrong))
    assert not PASSKEY_TABLE.list(work, "")
    add(work, device.register(to_add(work)))
    with pytest.raises(InvalidRequest):
        use(work, device.sign(to_sign(), **wrong))
    assert use(work, device.sign(to_sign())).sign_count == 2


ELSEWHERE: dict[str, tuple[str, Callable[[Work, Json], object]]] = {
    "another browser": (passkeys.TOO_LATE, lambda work, answer: use(work, answer, browser="another")),
    "another purpose": (passkeys.TOO_LATE, lambda work, answer: use(work, answer, purpose="fresh: another")),
    "an operator": (passkeys.TOO_LATE, lambda work, answer: use(work, answer, OF_OPERATORS)),
    "after 11 minutes": (passkeys.TOO_LATE, lambda work, answer: use(later(work, 11 * MINUTE), answer)),
    "before it was asked for": (passkeys.TOO_LATE, lambda work, answer: use(later(work, -60 * MINUTE), answer)),
    "as a new passkey": (passkeys.REFUSED, lambda work, answer: add(work, answer)),
    "as nothing": (passkeys.NO_ANSWER, lambda work, answer: use(work, "")),
    "as something else": (passkeys.REFUSED, lambda work, answer: use(work, "[]")),
    "as null": (passkeys.REFUSED, lambda work, answer: use(work, "null")),
    "as a new passkey that is null": (passkeys.REFUSED, lambda work, answer: add(work, "null")),
    "nested too deep": (passkeys.REFUSED, lambda work, answer: use(work, "[" * 10_000)),
}


@pytest.mark.parametrize(("says", "attempt"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_what_was_signed_is_good_for_nothing_else(
    work: Work, says: str, attempt: Callable[[Work, Json], object]
) -> None:
    answer = added(work).sign(to_sign())
    with pytest.raises(InvalidRequest, match=says):
        attempt(work, answer)
    assert use(later(work, 9 * MINUTE), answer).last_used_at


def test_what_was_signed_is_good_once(work: Work) -> None:
    device = added(work, counter=None)
    answer = device.sign(to_sign())
    use(work, answer)
    with pytest.raises(InvalidRequest, match=passkeys.TOO_LATE):
        use(later(work, 9 * MINUTE), answer)
    signed = passkeys.verify(work, OF_OWNERS, json.dumps(device.sign(to_sign())), SECRET, BROWSER, SIGN_IN)
    passkeys.use(work, OF_OWNERS, signed)
    with pytest.raises(InvalidRequest, match=passkeys.TOO_LATE):
        passkeys.use(work, OF_OWNERS, signed)
    use(later(work, 30 * MINUTE), device.sign(to_sign(at=NOW + 30 * MINUTE)))
    assert work.execute("SELECT count(*) FROM used_challenge").fetchone() == (1,), "the earlier ones have expired"


def test_registration_is_good_once_and_only_where_it_was_asked_for(work: Work) -> None:
    device = Authenticator(ORIGIN)
    answer = device.register(to_add(work))
    for elsewhere in ({"browser": "another"}, {"kind": OF_OPERATORS}):
        with pytest.raises(InvalidRequest, match=passkeys.TOO_LATE):
            add(work, answer, **elsewhere)
    with pytest.raises(InvalidRequest, match=passkeys.TOO_LATE):
        add(later(work, 11 * MINUTE), answer)
    made = add(work, answer)
    with pytest.raises(InvalidRequest, match=passkeys.TAKEN):
        add(work, answer)
    PASSKEY_TABLE.delete(work, id=made.id)
    with pytest.raises(InvalidRequest, match=passkeys.TOO_LATE):
        add(work, answer)


def test_credential_is_of_one_account(work: Work) -> None:
    device = added(work, OF_OPERATORS)
    with pytest.raises(InvalidRequest, match=passkeys.TAKEN):
        add(work, device.register(to_add(work)))
    with pytest.raises(InvalidRequest, match=passkeys.UNKNOWN):
        use(work, device.sign(to_sign()))


def test_copy_is_noticed_by_its_counter_and_the_passkey_is_suspect_for_good(work: Work) -> None:
    device = added(work)
    use(work, device.sign(to_sign()))
    device.counter = 0  # the copy has signed as often
    used = use(work, device.sign(to_sign()))
    assert (used.suspect_at, used.last_used_at, used.sign_count) == (NOW, NOW, 1)
    device.counter = 9
    with pytest.raises(InvalidRequest, match=passkeys.SUSPECT):
        use(work, device.sign(to_sign()))


def test_counter_that_stays_zero_says_nothing_and_one_that_falls_to_zero_does(work: Work) -> None:
    device = added(work, counter=None)
    assert [use(work, device.sign(to_sign())).suspect_at for _ in range(2)] == [None, None]
    counting = added(work)
    use(work, counting.sign(to_sign()))
    counting.counter = None
    assert use(work, counting.sign(to_sign())).suspect_at


def test_removed_passkey_and_one_of_another_user_sign_nobody_in(work: Work) -> None:
    device, other = added(work), added(work)
    answer = device.sign(to_sign())
    signed = passkeys.verify(work, OF_OWNERS, json.dumps(answer), SECRET, BROWSER, SIGN_IN)
    for wrong in ({"userHandle": None}, {"userHandle": base64url(b"mallory")}):
        with pytest.raises(InvalidRequest, match=passkeys.UNKNOWN):
            use(work, answer | {"response": answer["response"] | wrong})
    of_other = other.sign(to_sign())["response"]["signature"]
    with pytest.raises(InvalidRequest, match=passkeys.REFUSED):
        use(work, answer | {"response": answer["response"] | {"signature": of_other}})
    PASSKEY_TABLE.delete(work, id=signed.passkey.id)
    with pytest.raises(InvalidRequest, match=passkeys.UNKNOWN):
        use(work, answer)
    with pytest.raises(InvalidRequest, match=passkeys.UNKNOWN):
        passkeys.use(work, OF_OWNERS, signed)


def bad_keys() -> dict[str, Any]:
    good = Authenticator(ORIGIN).public_key
    p384 = {1: 2, 3: -35, -1: 2, -2: bytes(48), -3: bytes(48)}
    return {
        "a curve that was not asked for": p384,
        "no algorithm": {1: 2, 3: -65535},
        "no key": {},
        "a point on no curve": {**good, -2: bytes(32)},
        "half a point": {key: value for key, value in good.items() if key != -3},
        "RSA that takes long": {1: 3, 3: -257, -1: b"\xff" * 1024, -2: b"\xff" * 1023},
        "RSA with an even exponent": {1: 3, 3: -257, -1: b"\xff" * 256, -2: b"\x02"},
    }


@pytest.mark.parametrize("name", bad_keys())
def test_key_that_can_verify_nothing_is_not_added(work: Work, name: str) -> None:
    device = Authenticator(ORIGIN)
    device.public_key = bad_keys()[name]
    with pytest.raises(InvalidRequest, match=passkeys.REFUSED):
        add(work, device.register(to_add(work)))


def test_account_has_a_bounded_number_of_them_each_with_a_name(work: Work) -> None:
    device = Authenticator(ORIGIN)
    answer = device.register(to_add(work))
    for name in ("", " \u200b\u202e "):
        with pytest.raises(InvalidRequest, match=passkeys.NO_NAME):
            add(work, answer, name=name)
    for _ in range(MAX_PASSKEYS):
        added(work)
    for refused in (lambda: to_add(work), lambda: add(work, answer)):
        with pytest.raises(WrongState, match=passkeys.TOO_MANY):
            refused()
    added(work, OF_OPERATORS)


def test_passkey_is_found_by_its_account_alone(work: Work) -> None:
    made = add(work, Authenticator(ORIGIN).register(to_add(work)))
    assert passkeys.own_passkey(work, OF_OWNERS, ID, made.id) == made
    for kind, account in ((OF_OWNERS, ID + 1), (OF_OPERATORS, ID)):
        with pytest.raises(NotFound):
            passkeys.own_passkey(work, kind, account, made.id)


@pytest.mark.parametrize(
    ("base_url", "party"),
    [
        ("https://pay.example", "pay.example"),
        ("https://Pay.Example:8443", "pay.example"),
        ("https://bücher.example", "xn--bcher-kva.example"),
        ("http://localhost:8080", "localhost"),
        ("http://a.localhost", "a.localhost"),
        ("http://127.0.0.1:8080", None),
        ("http://[::1]:8080", None),
        ("https://192.0.2.1", None),
        ("http://pay.example", None),
    ],
)
def test_passkeys_are_for_the_host_where_browsers_take_them(base_url: str, party: str | None) -> None:
    assert passkeys.relying_party(Urls(base_url)) == party


def test_owner_is_told_by_mail_of_what_happens_to_passkeys(work: Work) -> None:
    mail.turn(work, on=True)
    mail.ADDRESSES.replace(work, mail.AddressRecord(ID, "alice@example.com", NOW, "en", "UTC"))
    made = add(work, Authenticator(ORIGIN).register(to_add(work)))
    remove_step(work, OF_OWNERS, OF_OWNERS.accounts.by_id(work, ID), passkeys.PASSKEYS, made.id)
    added(work, OF_OPERATORS)
    told = [(one.kind, one.data["name"]) for one in mail.MAILS.list(work, "WHERE kind LIKE 'passkey%' ORDER BY id")]
    assert told == [("passkey_added", "Pixel 9"), ("passkey_removed", "Pixel 9")]


def mutated(answer: Json, chance: random.Random) -> str:
    """The answer with one of its texts or bytes changed, cut or repeated, or one of its members taken away."""
    text = json.dumps(answer)
    match chance.randrange(4):
        case 0:
            at = chance.randrange(len(text))
            return text[:at] + chr(chance.randrange(32, 127)) + text[at + 1 :]
        case 1:
            return text[: chance.randrange(len(text))]
        case 2:
            part = chance.choice([answer, answer["response"]])
            name = chance.choice(list(part))
            kept = {key: value for key, value in part.items() if key != name}
            return json.dumps(kept if part is answer else answer | {"response": kept})
    name = chance.choice([key for key, value in answer["response"].items() if isinstance(value, str)])
    raw = bytearray(decoded(answer["response"][name]))
    raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    return json.dumps(answer | {"response": answer["response"] | {name: base64url(bytes(raw))}})


def test_mutated_answers_are_refused_in_order_and_change_nothing(work: Work) -> None:
    """Only what is not looked at may change: the format of an attestation, or the text around the answer."""
    chance, device = random.Random(int(os.environ.get("FUZZ_SEED", "1"))), added(work, counter=None)
    signed, other = device.sign(to_sign()), Authenticator(ORIGIN)
    registered = other.register(to_add(work))
    outcomes = {"taken": 0, "refused": 0}
    for number in range(MUTATIONS):
        with suppress(InvalidRequest), savepoint(work):
            outcomes["refused"] += 1
            if number % 2:
                assert use(work, mutated(signed, chance)).credential_id == device.credential_id
            else:
                assert add(work, mutated(registered, chance)).user_handle == SECRET.user_handle(OF_OWNERS, ID)
            outcomes["refused"] -= 1
            outcomes["taken"] += 1
            raise InvalidRequest("undoes it")
    assert outcomes["refused"] > MUTATIONS // 2, outcomes
