"""Credentials: those of the common STREAM receiver are opened, and so are our own, by nobody else."""

import base64
import re
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.protocol.amounts import Asset
from payres.interledger.credentials import CredentialSource, wallet_of
from payres.interledger.ilp_addresses import is_ilp_address
from payres.interledger.stream import SharedSecret

ADDRESS = re.compile(r"(g|private|example|peer|self|test[1-3]?|local)([.][a-zA-Z0-9_~-]+)+")
SECRET = bytes(range(32))
USD = Asset("USD", 2)
PAYMENT = str(UUID("01a1fc79-0911-70a0-a0fa-6dccf4c9252b"))


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_credentials_are_the_same_at_each_call_and_after_a_restart() -> None:
    first, second = (CredentialSource(SECRET, "test.payres").for_payment(PAYMENT, USD) for _ in range(2))
    assert first == second


def test_credentials_differ_in_whatever_they_stand_for() -> None:
    source = CredentialSource(SECRET, "test.payres")
    made = [
        source.for_payment(PAYMENT, USD),
        source.for_payment(PAYMENT[:-1] + "c", USD),
        source.for_payment(PAYMENT, Asset("EUR", 2)),
        source.for_payment(PAYMENT, Asset("USD", 3)),
        CredentialSource(SECRET[::-1], "test.payres").for_payment(PAYMENT, USD),
    ]
    tokens = [one.ilp_address.rpartition(".")[2] for one in made]
    assert len(set(tokens)) == len({one.shared_secret for one in made}) == len(made)
    # One IV never seals two texts: with AES-GCM that would give both away.
    assert len({decoded(token)[:12] for token in tokens}) == len(made)


@given(
    server_secret=st.binary(min_size=32, max_size=32),
    server_address=st.sampled_from(["test.payres", "g.bank.node-1", "private._~", f"g.{'a' * 798}"]),
    payment=st.uuids(),
    code=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=32),
    scale=st.integers(0, 255),
)
def test_credentials_fit_the_interface_and_lead_back_to_the_payment(
    server_secret: bytes, server_address: str, payment: UUID, code: str, scale: int
) -> None:
    source, asset = CredentialSource(server_secret, server_address), Asset(code, scale)
    made = source.for_payment(str(payment), asset)
    assert ADDRESS.fullmatch(made.ilp_address)
    assert len(made.ilp_address) <= 1023
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", made.shared_secret)
    for spelling in (made.ilp_address, f"{made.ilp_address}.more.segments", f"{made.ilp_address}."):
        found = source.open(spelling)
        assert found is not None
        assert (found.tag, found.asset, wallet_of(str(payment))) == (str(payment), asset, None)
        theirs = SharedSecret(decoded(made.shared_secret))
        assert found.shared_secret.fulfillment(b"data") == theirs.fulfillment(b"data")


def test_source_opens_the_addresses_of_the_reference_that_are_like_its_own(credentials_vector: dict[str, Any]) -> None:
    vector = credentials_vector
    source = CredentialSource(bytes.fromhex(vector["serverSecret"]), vector["serverAddress"])
    found = source.open(vector["ilpAddress"])
    is_as_ours = vector["paymentTag"] and vector["asset"] and not vector["receiptNonce"]
    if found is None:  # ours seal a tag and an asset, and nothing else
        assert not is_as_ours
        return
    assert is_as_ours
    assert (found.tag, found.asset) == (vector["paymentTag"], Asset(**vector["asset"]))
    theirs = SharedSecret(bytes.fromhex(vector["sharedSecret"]))
    assert found.shared_secret.fulfillment(b"data") == theirs.fulfillment(b"data")
    ours = source.for_payment(found.tag, found.asset)
    assert len(ours.ilp_address) == len(vector["ilpAddress"])


@given(st.data())
def test_address_that_was_changed_anywhere_is_not_ours(data: st.DataObject) -> None:
    source = CredentialSource(SECRET, "test.payres")
    address = source.for_payment(PAYMENT, USD).ilp_address
    at = data.draw(st.integers(0, len(address) - 1))
    other = data.draw(st.sampled_from("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."))
    changed = address[:at] + other + address[at + 1 :]
    opened_anew = source.open(changed)
    # The last letter has bits that stand for nothing.
    assert opened_anew is None or changed == address or at == len(address) - 1


@pytest.mark.parametrize("rest", ["", ".", "..x", "x.token", ".a", ".~"])
def test_address_without_a_token_is_not_ours(rest: str) -> None:
    source = CredentialSource(SECRET, "test.payres")
    assert source.open(f"test.payres{rest}") is source.open("test") is source.open("") is None


def test_address_gives_nothing_away_and_is_of_no_other_server_or_secret() -> None:
    address = CredentialSource(SECRET, "test.payres").for_payment(PAYMENT, USD).ilp_address
    assert PAYMENT.encode() not in decoded(address.rpartition(".")[2])
    assert CredentialSource(SECRET[::-1], "test.payres").open(address) is None
    assert CredentialSource(SECRET, "test.other").open(address) is None


def test_wallets_credentials_are_new_at_each_call_and_all_lead_to_it() -> None:
    source = CredentialSource(SECRET, "test.payres")
    made = [source.for_wallet("17", USD) for _ in range(20)]
    assert len({one.ilp_address for one in made}) == len({one.shared_secret for one in made}) == 20
    for one in made:
        found = source.open(one.ilp_address)
        assert found is not None
        assert (wallet_of(found.tag), found.asset) == ("17", USD)
        assert SharedSecret(decoded(one.shared_secret)).fulfillment(b"") == found.shared_secret.fulfillment(b"")


def test_longest_address_of_a_wallet_is_an_ilp_address() -> None:
    source = CredentialSource(SECRET, f"g.{'a' * 798}")
    assert is_ilp_address(source.for_wallet("a" * 32, Asset("A" * 32, 255)).ilp_address)
