import json

import pytest

from payres.member_names import repeated_member


@pytest.mark.parametrize(
    ("body", "member"),
    [
        ('{"a":1,"b":{"a":1},"c":[{"a":1},{"a":1}]}', None),
        ('{"a":1,"b":2,"a":1}', "a"),
        ('{"a":{"b":1,"b":2}}', "a.b"),
        ('{"a":[1,[{"b":{"c":1}},{"b":{"c":1,"c":[]}}]]}', "a[1][1].b.c"),
        ('[{"a":1,"a":1}]', "[0].a"),
        ('{"a":1,"\\u0061":2}', "a"),
        ('{"":1,"":2}', ""),
        ('{"":{"":1,"":2}}', ""),
        ('{"a\\":":1,"a":2}', None),
        ('{"metadata":{"a":1,"a":2}}', None),
        ('{"metadata":[{"a":1,"a":2}]}', None),
        ('{"metadata":1,"metadata":2}', "metadata"),
        ('{"metadata":{"a":1,"a":2},"b":{"c":1,"c":2}}', "b.c"),
        ('{"b":{"metadata":{"a":1,"a":2}}}', "b.metadata.a"),
        ('{"metadata":{"a":1,"a":' + "9" * 20_000 + "}}", None),
        ("1", None),
    ],
)
def test_repeated_member_is_named_by_its_path(body: str, member: str | None) -> None:
    assert repeated_member(body.encode()) == member


def test_repeated_member_takes_bytes_that_are_no_text() -> None:
    assert repeated_member(b'{"metadata":{"a":"\xff","a":"\xfe"}}') is None
    assert repeated_member(b'{"a":"\xff","a":"\xfe"}') == "a"


@pytest.mark.parametrize("body", [b"{", b'{"a":1}{', b"{'a':1}"])
def test_repeated_member_is_sought_in_json_only(body: bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        repeated_member(body)
