import pytest

from payres.interledger.ilp_addresses import MAX_ILP_ADDRESS, is_ilp_address

SCHEMES = ["g", "private", "example", "peer", "self", "test", "test1", "test2", "test3", "local"]


ADDRESSES = [
    *(f"{scheme}.a" for scheme in SCHEMES),
    "g.us-fed.ach.0.acmebank.swx0a0.acmecorp.sales.199.~ipr.cdfa5e16.3.~a",
    *("test.A_b-c~d", "g.g", "test.~", f"g.{'a' * (MAX_ILP_ADDRESS - 2)}"),
]
OTHERS = [
    *SCHEMES,
    *("", ".", "g.", ".g", "g..a", "g.a.", "G.a", "gg.a", "test4.a", "test12.a", "a.b", "https://g.a", "$g.a"),
    *("g.a b", "g.a\n", "g.a\0", "g.a/b", "g.é", "g.１", f"g.{'a' * (MAX_ILP_ADDRESS - 1)}"),
]


@pytest.mark.parametrize(
    ("text", "is_one"), [*((text, True) for text in ADDRESSES), *((text, False) for text in OTHERS)]
)
def test_address_is_a_scheme_and_segments(text: str, is_one: bool) -> None:
    assert is_ilp_address(text) is is_one
