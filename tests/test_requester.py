import pytest

from payres.requester import (
    UNREADABLE,
    Requester,
    _counted,
    address_of,
    count_for_client,
    counted_address,
    requested_by,
)

ADDRESS, CLIENT = ("203.0.113.1",), ("https://shop.example/alice",)


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2::", "2001:db8:1:2::/64"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("127.0.0.1", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", UNREADABLE),
        ("", UNREADABLE),
        ("127.0.0.1:80", UNREADABLE),
        ("fe80::1%" + "a" * 45, UNREADABLE),
    ],
)
def test_address_is_counted_with_its_network(address: str, counted: str | None) -> None:
    assert counted_address(address) == counted


FORWARDED = (b"x-forwarded-for", b"as the proxy says")


@pytest.mark.parametrize(
    ("client", "headers", "counted"),
    [
        (("203.0.113.7", 0), [FORWARDED], "203.0.113.7"),
        (("203.0.113.7", 50000), [], "203.0.113.7"),
        (("127.0.0.1", 50000), [], None),
        (("127.0.0.1", 0), [FORWARDED], UNREADABLE),
        (("::1", 50000), [(b"host", b"h"), FORWARDED], UNREADABLE),
        (("unknown", 0), [FORWARDED], UNREADABLE),
        (("x" * 30_000, 0), [FORWARDED], UNREADABLE),
        (None, [], None),
    ],
)
def test_request_that_is_forwarded_is_always_counted(
    client: tuple[str, int] | None, headers: list[tuple[bytes, bytes]], counted: str | None
) -> None:
    assert address_of({"type": "http", "client": client, "headers": headers}) == counted


def test_long_texts_that_are_no_address_are_not_kept() -> None:
    before = _counted.cache_info().currsize
    for number in range(10):
        assert counted_address(f"{number}" * 30_000) == UNREADABLE
    assert _counted.cache_info().currsize == before


@pytest.mark.parametrize(
    ("before", "is_key", "after"),
    [
        (None, False, None),
        (None, True, None),
        (ADDRESS, False, CLIENT),
        (ADDRESS, True, (*ADDRESS, *CLIENT)),
        ((*ADDRESS, "thumbprint"), True, (*ADDRESS, *CLIENT)),
        (CLIENT, False, CLIENT),
    ],
)
def test_request_is_counted_for_a_client_once_it_is_known(
    before: Requester | None, is_key: bool, after: Requester | None
) -> None:
    token = requested_by.set(before)
    count_for_client(CLIENT[0], is_key)
    assert requested_by.get() == after
    requested_by.reset(token)
