import pytest

from payres.operator.admin_hosts import AdminHosts


def scope(client: str | None, host: str | None = "localhost:8080", **headers: str) -> dict[str, object]:
    named = [] if host is None else [(b"host", host.encode())]
    return {
        "client": None if client is None else (client, 1),
        "headers": named + [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }


HERE = ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1")
OTHERS = ("10.1.2.3", "192.0.2.1", "fe80::1", "unreadable", "", None)
NAMES = ("localhost", "localhost:8080", "payres.localhost", "127.0.0.1:8080", "[::1]", "10.1.2.3")
# Names that somebody can make lead here.
STRANGE_NAMES = ("pay.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[", None)


@pytest.mark.parametrize("client", [*HERE, *OTHERS])
@pytest.mark.parametrize("host", [*NAMES, *STRANGE_NAMES])
def test_this_machine_is_let_in_by_its_own_names_and_nobody_else(client: str | None, host: str | None) -> None:
    assert AdminHosts("").let_in(scope(client, host)) == (client in HERE and host in NAMES)


def test_two_hosts_are_not_let_in() -> None:
    twice = scope("127.0.0.1")
    twice["headers"] = [(b"host", b"localhost"), (b"host", b"pay.example")]
    assert not AdminHosts("pay.example").let_in(twice)


@pytest.mark.parametrize(
    "header", ["forwarded", "via", "x_forwarded_for", "x_forwarded_host", "x_forwarded_proto", "x_real_ip"]
)
@pytest.mark.parametrize("value", ["127.0.0.1", "for=localhost"])
def test_what_a_proxy_here_forwards_is_not_this_machines(header: str, value: str) -> None:
    assert not AdminHosts("").let_in(scope("127.0.0.1", **{header: value}))
    assert not AdminHosts("10.0.0.0/8").let_in(scope("127.0.0.1", **{header: value}))
    assert AdminHosts("10.0.0.0/8").let_in(scope("10.1.2.3", **{header: value}))


def test_setting_lets_in_networks_and_names() -> None:
    hosts = AdminHosts("10.0.0.0/8,2001:db8::/32,192.0.2.7,payres.internal")
    for client in ("10.1.2.3", "2001:db8::1", "192.0.2.7", "127.0.0.1", "::ffff:10.1.2.3"):
        assert hosts.let_in(scope(client, "payres.internal:8080"))
        assert hosts.let_in(scope(client, "PAYRES.internal"))
        assert not hosts.let_in(scope(client, "other.internal"))
    assert not hosts.let_in(scope("192.0.2.8", "payres.internal"))
