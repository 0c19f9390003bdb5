"""Base64url: RFC 4648's vectors without their padding, and back."""

import binascii
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.protocol.clock import DAY, SECOND
from payres.core.protocol.identifiers import (
    base64url,
    base64url_decoded,
    moment_of,
    new_id,
)


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


@pytest.mark.parametrize(("back", "rises"), [(0, True), (30 * SECOND, True), (30 * DAY, False)])
def test_ids_rise_and_follow_a_clock_that_is_set_back_far(
    monkeypatch: pytest.MonkeyPatch, back: int, rises: bool
) -> None:
    before, now = new_id(), time.time_ns() - back * 1000
    monkeypatch.setattr(time, "time_ns", lambda: now)
    found = [new_id() for _ in range(9)]
    assert all(one > before for one in found) is rises
    assert all(abs(moment_of(one) - now // 1000) <= 131 * SECOND for one in found)
