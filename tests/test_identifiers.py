import pytest

from payres.identifiers import MAX_ILP_ADDRESS, is_ilp_address

SCHEMES = ["g", "private", "example", "peer", "self", "test", "test1", "test2", "test3", "local"]


@pytest.mark.parametrize(
    "text",
    [
        *(f"{scheme}.a" for scheme in SCHEMES),
        "g.us-fed.ach.0.acmebank.swx0a0.acmecorp.sales.199.~ipr.cdfa5e16.3.~a",
        *("test.A_b-c~d", "g.g", "test.~", f"g.{'a' * (MAX_ILP_ADDRESS - 2)}"),
    ],
)
def test_address_is_known(text: str) -> None:
    assert is_ilp_address(text)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_scheme_alone_is_no_address(scheme: str) -> None:
    assert not is_ilp_address(scheme)


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "g.", ".g", "g..a", "g.a.", "G.a", "gg.a", "test4.a", "test12.a", "a.b", "https://g.a", "$g.a"),
        *("g.a b", "g.a\n", "g.a\0", "g.a/b", "g.é", "g.１", f"g.{'a' * (MAX_ILP_ADDRESS - 1)}"),
    ],
)
def test_other_text_is_no_address(text: str) -> None:
    assert not is_ilp_address(text)
