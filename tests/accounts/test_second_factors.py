"""The rules of codes, by the test vectors of RFC 6238, and what a count of wrong codes survives."""

import base64
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from payres.accounts import second_factors
from payres.accounts.second_factors import FRESH, factors_of, is_fresh, new_recovery_codes, remove_step, verify
from payres.accounts.second_step import Refused, SecondStep
from payres.accounts.store.kinds import Account, Kind
from payres.accounts.store.owners import OF_OWNERS
from payres.accounts.totp import CODES, MAX_WRONG_CODES, STEP, begin_codes, code_at, confirm_codes, unconfirmed_secret
from payres.core.protocol.clock import MINUTE, SECOND
from payres.core.protocol.errors import WrongState
from payres.core.store.connections import connect_writer
from payres.core.store.work import Work
from payres.operator.operators import make_link
from payres.operator.store.operators import OF_OPERATORS
from payres.operator.wallets import create_wallet
from tests.works import NOW, work_at

T = TypeVar("T")
kinds = pytest.mark.parametrize("kind", [OF_OWNERS, OF_OPERATORS], ids=["owner", "operator"])


@pytest.mark.parametrize(
    ("moment", "code"),
    [
        (59, "94287082"),
        (1111111109, "07081804"),
        (1111111111, "14050471"),
        (1234567890, "89005924"),
        (2000000000, "69279037"),
        (20000000000, "65353130"),
    ],
)
def test_codes_are_those_of_rfc_6238(moment: int, code: str) -> None:
    secret, step = b"12345678901234567890", moment * SECOND // STEP
    assert code_at(secret, step, digits=8) == code
    assert code_at(secret, step) == code[2:]


def with_codes(tx: Work, kind: Kind) -> bytes:
    """An account whose codes are on; returns their secret."""
    create_wallet(tx, "alice", "USD", 2, None, "hash")
    make_link(tx, "alice")
    begin_codes(tx, kind, 1)
    text = unconfirmed_secret(tx, kind, 1)
    assert text is not None
    secret = base64.b32decode(text)
    assert confirm_codes(tx, kind, account_of(tx, kind), code_at(secret, tx.now // STEP - 1))
    return secret


def account_of(tx: Work, kind: Kind) -> Account:
    return kind.accounts.by_id(tx, 1)


def way(found: SecondStep | Refused) -> str | None:
    """What is stored of a sign-in with what was found; None if it was refused."""
    return None if isinstance(found, Refused) else found.way


@kinds
@pytest.mark.parametrize(
    ("steps", "is_right"), [(-2, False), (-1, False), (0, True), (1, True), (2, False)], ids=lambda one: str(one)
)
def test_code_is_taken_one_step_to_each_side_and_after_the_last(
    tx: Work, kind: Kind, steps: int, is_right: bool
) -> None:
    secret = with_codes(tx, kind)  # with the code of one step before
    code = code_at(secret, tx.now // STEP + steps)
    assert (way(verify(tx, kind, 1, f" {code[:3]} {code[3:]} ")) is not None) == is_right
    assert way(verify(tx, kind, 1, code)) is None, "a second time"
    other = OF_OPERATORS if kind is OF_OWNERS else OF_OWNERS
    assert way(verify(tx, other, 1, code_at(secret, tx.now // STEP + 1))) is None, "the account of another kind"


@pytest.mark.parametrize("typed", ["", "00000", "١٢٣٤٥٦", "💶", "0" * 4000, "-"])
def test_what_is_no_code_is_wrong(tx: Work, typed: str) -> None:
    with_codes(tx, OF_OWNERS)
    assert way(verify(tx, OF_OWNERS, 1, typed)) is None
    assert factors_of(tx, OF_OWNERS, 1).held["codes"].tries_left == MAX_WRONG_CODES - 1


@kinds
def test_recovery_code_is_good_once_for_its_account_as_it_is_read(tx: Work, kind: Kind) -> None:
    with_codes(tx, kind)
    first, second, *_ = new_recovery_codes(tx, kind, account_of(tx, kind))
    other = OF_OPERATORS if kind is OF_OWNERS else OF_OWNERS
    assert way(verify(tx, other, 1, first)) is None
    assert (
        way(verify(tx, kind, 1, first.replace("o", "0").replace("l", "1").replace("b", "8").upper())) == "recovery code"
    )
    assert way(verify(tx, kind, 1, first)) is None
    assert way(verify(tx, kind, 1, second.replace("-", ""))) == "recovery code"
    stored = [row[0] for row in tx.execute("SELECT hash FROM recovery_code").fetchall()]
    assert len(stored) == 10
    assert all(len(one) == 32 for one in stored)


def test_secret_is_stored_encrypted(tx: Work) -> None:
    secret = with_codes(tx, OF_OWNERS)
    [(stored,)] = tx.execute("SELECT secret FROM totp").fetchall()
    assert secret not in stored
    assert base64.b32encode(secret) not in stored


def test_recovery_codes_go_with_the_last_factor(tx: Work) -> None:
    with_codes(tx, OF_OWNERS)
    owner = account_of(tx, OF_OWNERS)
    new_recovery_codes(tx, OF_OWNERS, owner)
    remove_step(tx, OF_OWNERS, owner, CODES)
    assert factors_of(tx, OF_OWNERS, 1) == ({}, None)
    with pytest.raises(WrongState, match="there is none"):
        new_recovery_codes(tx, OF_OWNERS, owner)


def test_link_from_the_shell_removes_an_operators_factors_and_one_from_the_pages_does_not(tx: Work) -> None:
    with_codes(tx, OF_OPERATORS)
    tx.actor = "page:ben"
    make_link(tx, "alice")
    assert second_factors.has_factor(tx, OF_OPERATORS, 1)
    tx.actor = "shell:root"
    make_link(tx, "alice")
    assert not second_factors.has_factor(tx, OF_OPERATORS, 1)


@pytest.mark.parametrize(("age", "counts"), [(0, True), (FRESH - 1, True), (FRESH, False), (-2 * MINUTE, False)])
def test_factor_counts_for_five_minutes(age: int, counts: bool) -> None:
    assert is_fresh(NOW - age, NOW) == counts
    assert not is_fresh(None, NOW)


def test_count_of_wrong_codes_survives_a_restart(tmp_path: Path) -> None:
    def anew(unit: Callable[[Work], T]) -> T:
        with closing(connect_writer(str(tmp_path / "payres.db"))) as connection:
            connection.execute("BEGIN")
            result = unit(work_at(connection, NOW))
            connection.execute("COMMIT")
        return result

    secret = anew(lambda work: with_codes(work, OF_OWNERS))
    for _ in range(MAX_WRONG_CODES):
        assert anew(lambda work: way(verify(work, OF_OWNERS, 1, "000000"))) is None
    assert anew(lambda work: factors_of(work, OF_OWNERS, 1)).held["codes"].is_locked
    assert anew(lambda work: way(verify(work, OF_OWNERS, 1, code_at(secret, NOW // STEP + 1)))) is None
