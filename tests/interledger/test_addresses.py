"""Addresses: what is one (RFC 15), what can be routed, and what lies below what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.interledger.addresses import MAX_LENGTH, covers, is_address, is_prefix

SCHEMES = ["g", "private", "example", "peer", "self", "test", "test1", "test2", "test3", "local"]
segments = st.text("abzAZ09_~-", min_size=1, max_size=4)
addresses = st.builds(
    lambda scheme, rest: ".".join([scheme, *rest]), st.sampled_from(SCHEMES), st.lists(segments, min_size=1, max_size=4)
)


@pytest.mark.parametrize(
    "text",
    [
        *(f"{scheme}.a" for scheme in SCHEMES),
        "g.us-fed.ach.0.acmebank.swx0a0.acmecorp.sales.199.~ipr.cdfa5e16.3.~a",
        *("test.A_b-c~d", "g.g", "test.~", f"g.{'a' * (MAX_LENGTH - 2)}"),
    ],
)
def test_address_is_known(text: str) -> None:
    assert is_address(text)
    assert is_prefix(text)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_scheme_alone_is_a_prefix_and_no_address(scheme: str) -> None:
    assert is_prefix(scheme)
    assert not is_address(scheme)


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "g.", ".g", "g..a", "g.a.", "G.a", "gg.a", "test4.a", "test12.a", "a.b", "https://g.a", "$g.a"),
        *("g.a b", "g.a\n", "g.a\0", "g.a/b", "g.é", "g.１", f"g.{'a' * (MAX_LENGTH - 1)}"),
    ],
)
def test_other_text_is_neither_address_nor_prefix(text: str) -> None:
    assert not is_address(text)
    assert not is_prefix(text)


@pytest.mark.parametrize(
    ("prefix", "address", "expected"),
    [
        ("g.bank", "g.bank", True),
        ("g.bank", "g.bank.alice", True),
        ("g.bank", "g.bank.alice.token", True),
        ("g", "g.bank", True),
        ("g.bank", "g.banker", False),
        ("g.bank", "g.bank-2.alice", False),
        ("g.bank.alice", "g.bank", False),
        ("g.bank", "g.Bank.alice", False),
        ("test", "test1.alice", False),
        ("g.bank", "private.g.bank", False),
    ],
)
def test_prefix_covers_whole_segments(prefix: str, address: str, expected: bool) -> None:
    assert covers(prefix, address) is expected


@given(addresses, addresses)
def test_prefix_covers_as_its_segments_begin_the_address(prefix: str, address: str) -> None:
    parts = prefix.split(".")
    assert covers(prefix, address) == (address.split(".")[: len(parts)] == parts)


@given(addresses, st.lists(segments, max_size=3))
def test_address_covers_what_is_below_it(address: str, below: list[str]) -> None:
    assert is_address(address)
    assert covers(address, ".".join([address, *below]))
