import pytest

from payres.http.request_head import credentials

Header = tuple[bytes, bytes]
HOST = (b"host", b"wallet.example")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        *((b"GNAP abc", "abc"), (b"gnap abc", "abc"), (b"GNAP  abc \t", "abc"), (b"GNAP \xe4", "ä")),
        *((b"Bearer abc", None), (b"GNAP", None), (b"GNAP ", None), (b"", None), (b"GNAPabc", None)),
    ],
)
def test_credentials_are_those_of_the_scheme(value: bytes, found: str | None) -> None:
    assert credentials([HOST, (b"authorization", value)], "gnap") == found


def test_credentials_are_of_the_first_line_and_none_without_one() -> None:
    assert credentials([(b"authorization", b"GNAP a"), (b"authorization", b"GNAP b")], "gnap") == "a"
    assert credentials([HOST], "gnap") is None
