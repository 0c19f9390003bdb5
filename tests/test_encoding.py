"""base64url: RFC 4648's vectors without their padding, and back."""

import binascii

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.encoding import base64url, base64url_decoded


@pytest.mark.parametrize(
    ("data", "text"), [(b"", ""), (b"f", "Zg"), (b"fo", "Zm8"), (b"foo", "Zm9v"), (b"\xfb\xff", "-_8")]
)
def test_known_values(data: bytes, text: str) -> None:
    assert base64url(data) == text
    assert base64url_decoded(text) == data


@given(st.binary(max_size=80))
def test_what_is_encoded_is_decoded(data: bytes) -> None:
    assert base64url_decoded(base64url(data)) == data


def test_impossible_length_is_an_error() -> None:
    with pytest.raises(binascii.Error):
        base64url_decoded("A")
