"""The words that explain a refusal."""

import re

import msgspec
import pytest

from payres.signatures.reasons import Reason, Rejected


@pytest.mark.parametrize("reason", Reason)
def test_reason_is_a_stable_word_with_a_one_line_meaning(reason: Reason) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", reason)
    assert re.fullmatch(r"[A-Z][^\n]{10,110}\.", reason.meaning)


def test_reasons_are_distinct_and_explained_differently() -> None:
    assert len({str(reason) for reason in Reason}) == len(Reason)
    assert len({reason.meaning for reason in Reason}) == len(Reason)


def test_rejected_encodes_its_reason_as_the_word() -> None:
    encoded = msgspec.json.encode(Rejected(Reason.EXPIRED, "Sign again."))
    assert msgspec.json.decode(encoded)["reason"] == "expired"
