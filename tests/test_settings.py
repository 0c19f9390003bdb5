from pathlib import Path
from typing import Any

import msgspec
import pytest

from payres.settings import Settings, SettingsError, load_settings

FIELDS = [field.name for field in msgspec.structs.fields(Settings)]


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, without a payres.toml."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(flags: dict[str, object] | None = None, environment: dict[str, str] | None = None) -> Settings:
    return load_settings(flags, environment or {})


@pytest.mark.parametrize(("quote", "interaction", "effective"), [(900, 600, 900), (300, 600, 600), (900, 1200, 1200)])
def test_quote_lives_at_least_as_long_as_an_interaction(quote: int, interaction: int, effective: int) -> None:
    settings = load({"quote_lifetime": quote, "interaction_lifetime": interaction})
    assert (settings.quote_lifetime, settings.effective_quote_lifetime) == (quote, effective)


def test_defaults_are_those_of_a_first_try() -> None:
    assert load() == Settings()
    assert msgspec.to_builtins(load()) == {
        "base_url": "http://127.0.0.1:8080",
        "database": "payres.db",
        "host": "127.0.0.1",
        "port": 8080,
        "ilp_address": "test.payres",
        "continue_wait": 5,
        "access_token_lifetime": 600,
        "interaction_lifetime": 600,
        "quote_lifetime": 900,
        "incoming_payment_lifetime": 2_592_000,
        "signature_max_age": 300,
        "allow_private_hosts": False,
        "max_body_bytes": 65_536,
        "rate_limit_per_client": 10_000,
        "rate_limit_per_address": 10_000,
        "rate_limit_unauthenticated": 50,
        "rate_limit_per_peer": 10_000,
        "trusted_proxies": "127.0.0.1",
        "admin_hosts": "",
        "backup_directory": "",
        "rates_url": "",
        "rates_max_age": 300,
        "metrics_token": "",
        "log_format": "text",
        "read_only": False,
    }


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ""),
        (" 10.0.0.0/8 , Payres.Internal,", "10.0.0.0/8,payres.internal"),
        ("192.0.2.1,2001:db8::/32", "192.0.2.1,2001:db8::/32"),
    ],
)
def test_admin_hosts_are_addresses_networks_and_names(text: str, hosts: str) -> None:
    assert load(environment={"PAYRES_ADMIN_HOSTS": text}).admin_hosts == hosts


@pytest.mark.parametrize("text", ["10.0.0.1/8", "10.0.0.256", "http://localhost", "a b", "*", "name:8080"])
def test_admin_hosts_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"PAYRES_ADMIN_HOSTS = .* must be IP addresses, networks and host names"):
        load(environment={"PAYRES_ADMIN_HOSTS": text})


@pytest.mark.parametrize(
    ("text", "proxies"),
    [
        ("", ""),
        (" 127.0.0.1 , ::1,10.0.0.0/8 ", "127.0.0.1,::1,10.0.0.0/8"),
    ],
)
def test_trusted_proxies_are_addresses_and_networks(text: str, proxies: str) -> None:
    assert load({"trusted_proxies": text}).trusted_proxies == proxies


@pytest.mark.parametrize("text", ["*", "proxy.example", "127.0.0.1 ::1", "10.0.0.1/8"])
def test_trusted_proxies_are_nothing_else(text: str) -> None:
    with pytest.raises(SettingsError, match="must be IP addresses and networks"):
        load({"trusted_proxies": text})


def test_flags_win_over_environment_over_file_over_defaults(empty_directory: Path) -> None:
    file = empty_directory / "payres.toml"
    file.write_text('database = "file"\nquote_lifetime = 1\ncontinue_wait = 1\nport = 1\n')
    environment = {"PAYRES_QUOTE_LIFETIME": "2", "PAYRES_CONTINUE_WAIT": "2", "PAYRES_PORT": "2", "OTHER": "x"}
    settings = load({"continue_wait": 3, "port": 3, "database": None}, environment)
    assert (settings.signature_max_age, settings.database, settings.quote_lifetime) == (300, "file", 2)
    assert (settings.continue_wait, settings.port) == (3, 3)


def test_file_is_the_one_named(empty_directory: Path) -> None:
    for name, port in (("payres.toml", 1), ("named.toml", 2)):
        (empty_directory / name).write_text(f"port = {port}\n")
    assert load().port == 1
    assert load(environment={"PAYRES_CONFIG": str(empty_directory / "named.toml")}).port == 2
    assert load(environment={"PAYRES_CONFIG": ""}).port == 1


@pytest.mark.parametrize(
    ("chosen", "base_url"),
    [
        ({}, "http://127.0.0.1:8080"),
        ({"port": 9000}, "http://127.0.0.1:9000"),
        ({"host": "0.0.0.0"}, "http://127.0.0.1:8080"),
        ({"host": "192.0.2.7", "port": 80}, "http://192.0.2.7:80"),
        ({"host": "::", "port": 9000}, "http://[::1]:9000"),
        ({"host": "::1"}, "http://[::1]:8080"),
        ({"host": "localhost"}, "http://localhost:8080"),
        ({"host": "0.0.0.0", "port": 1, "base_url": "https://pay.example"}, "https://pay.example"),
        ({"base_url": "https://PAY.example/"}, "https://pay.example"),
        ({"base_url": "https://pay.example:8443"}, "https://pay.example:8443"),
    ],
)
def test_base_url_follows_host_and_port_unless_it_is_chosen(chosen: dict[str, object], base_url: str) -> None:
    assert load(chosen).base_url == base_url


@pytest.mark.parametrize(
    "url",
    [
        *("", "pay.example", "ftp://pay.example", "https://", "https://pay.example/api", "https://pay.example?x=1"),
        *("https://pay.example/#a", "https://user@pay.example", "https://pay .example", "https://pay.example/a/b"),
    ],
)
def test_base_url_is_an_origin(url: str) -> None:
    with pytest.raises(SettingsError, match="base_url") as error:
        load({"base_url": url})
    assert repr(url) in str(error.value)


@pytest.mark.parametrize("address", ["test.payres", "g.bank.node-1", "private._a~b", "test3.x", f"g.{'a' * 798}"])
def test_ilp_address_may_be(address: str) -> None:
    assert load({"ilp_address": address}).ilp_address == address


@pytest.mark.parametrize("address", ["", "payres", "test.", "test4.x", "g..a", "g.é", "g.a\n", f"g.{'a' * 799}"])
def test_ilp_address_may_not_be(address: str) -> None:
    with pytest.raises(SettingsError, match="ilp_address"):
        load({"ilp_address": address})


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("port", 0, 65_535),
        ("continue_wait", 0, 86_400),
        ("access_token_lifetime", 1, 315_360_000),
        ("interaction_lifetime", 1, 315_360_000),
        ("quote_lifetime", 1, 315_360_000),
        ("incoming_payment_lifetime", 1, 315_360_000),
        ("signature_max_age", 1, 315_360_000),
        ("max_body_bytes", 1024, 16 * 1024 * 1024),
    ],
)
def test_numbers_have_bounds(name: str, least: int, most: int) -> None:
    variable = f"PAYRES_{name.upper()}"
    for value in (least, most):
        assert getattr(load({name: value}), name) == getattr(load(None, {variable: str(value)}), name) == value
    for wrong in (least - 1, most + 1):
        with pytest.raises(SettingsError, match=f"{name} = {wrong} .flag. is not allowed: .*from {least} to {most}"):
            load({name: wrong})
        with pytest.raises(SettingsError, match=f"{variable} = '{wrong}' .environment. is not allowed"):
            load(None, {variable: str(wrong)})
    for text in ("", "many", "1.5", "0x10"):
        with pytest.raises(SettingsError, match=variable):
            load(None, {variable: text})


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("false", False), ("0", False)])
def test_truth_is_written_as_a_word_or_a_digit(text: str, value: bool) -> None:
    assert load(None, {"PAYRES_ALLOW_PRIVATE_HOSTS": text}).allow_private_hosts is value


@pytest.mark.parametrize("text", ["yes", "", "2"])
def test_truth_is_written_in_no_other_way(text: str) -> None:
    with pytest.raises(SettingsError, match=r"PAYRES_ALLOW_PRIVATE_HOSTS .* true or false"):
        load(None, {"PAYRES_ALLOW_PRIVATE_HOSTS": text})


@pytest.mark.parametrize(
    ("flags", "environment", "file", "named"),
    [
        ({"colour": "red"}, {}, "", "colour (flag)"),
        ({}, {"PAYRES_COLOUR": "red"}, "", "PAYRES_COLOUR (environment)"),
        ({}, {}, 'colour = "red"', "colour (payres.toml)"),
        ({}, {}, "[payres]\nport = 1", "payres (payres.toml)"),
    ],
)
def test_unknown_setting_stops_the_start_with_those_there_are(
    empty_directory: Path, flags: dict[str, object], environment: dict[str, str], file: str, named: str
) -> None:
    (empty_directory / "payres.toml").write_text(file)
    with pytest.raises(SettingsError) as error:
        load(flags, environment)
    assert str(error.value) == f"{named} is not a setting; the settings are: {', '.join(FIELDS)}"


@pytest.mark.parametrize(
    "content", ['port = "1"', "port = 1.0", "database = 5", 'allow_private_hosts = "true"', "host = []"]
)
def test_file_has_types(empty_directory: Path, content: str) -> None:
    (empty_directory / "payres.toml").write_text(content)
    with pytest.raises(SettingsError, match=r"payres\.toml"):
        load()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("metrics_token = 5", "it must be text, in quotes"),
        ("database = 5", "it must be text, and not empty"),
        ('database = ""', "it must be text, and not empty"),
    ],
)
def test_text_is_asked_for_in_words(empty_directory: Path, content: str, sentence: str) -> None:
    (empty_directory / "payres.toml").write_text(content)
    with pytest.raises(SettingsError, match=rf" is not allowed: {sentence}$"):
        load()


def test_file_that_cannot_be_read_stops_the_start(empty_directory: Path) -> None:
    broken = empty_directory / "broken.toml"
    broken.write_text("port = = 1")
    binary = empty_directory / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    attempts: list[tuple[Any, str]] = [
        (empty_directory / "missing.toml", r"\(PAYRES_CONFIG\) cannot be read: No such file or directory"),
        (empty_directory, "cannot be read"),
        (broken, "is not valid TOML"),
        (binary, "is not valid TOML"),
    ]
    for file, sentence in attempts:
        with pytest.raises(SettingsError, match=sentence) as error:
            load(environment={"PAYRES_CONFIG": str(file)})
        assert str(file) in str(error.value)


def test_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAYRES_QUOTE_LIFETIME", "77")
    assert load_settings().quote_lifetime == 77
