import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from payres.core.process.settings import Settings, SettingsError
from payres.settings import ALL_SETTINGS, load_settings


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, without a payres.toml."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(flags: dict[str, object] | None = None, environment: dict[str, str] | None = None) -> Settings:
    return load_settings(flags, environment or {})


def test_each_setting_that_is_set_has_its_origin(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text("port = 1\nquote_lifetime = 77\nname = 'A'\n")
    environment = {"PAYRES_CONFIG": str(file), "PAYRES_PORT": "2", "PAYRES_NAME": "B"}
    assert dict(load({"port": 3, "host": None}, environment).origins) == {
        "port": "--port",
        "quote_lifetime": str(file),
        "name": "PAYRES_NAME",
        "base_url": "host and port",
    }
    (tmp_path / "payres.toml").write_text("base_url = 'https://pay.example'\n")
    assert load({"base_url": "https://other.example"}).origins == (("base_url", "--base-url"),)
    assert load().origins == (("base_url", "payres.toml"),)


HOSTS = "must be IP addresses, networks and host names"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("admin_hosts", "", ""),
        ("admin_hosts", " 10.0.0.0/8 , Payres.Internal,", "10.0.0.0/8,payres.internal"),
        ("admin_hosts", "192.0.2.1,2001:db8::/32", "192.0.2.1,2001:db8::/32"),
        ("trusted_proxies", "", ""),
        ("trusted_proxies", " 127.0.0.1 , ::1,10.0.0.0/8 ", "127.0.0.1,::1,10.0.0.0/8"),
        ("ilp_address", f"g.{'a' * 798}", f"g.{'a' * 798}"),
        ("log_level", "debug", "debug"),
        ("name", " صرافی\u200cها ", "صرافی\u200cها"),
        *(("allow_private_hosts", text, True) for text in ("true", "1")),
        *(("allow_private_hosts", text, False) for text in ("false", "0")),
    ],
)
def test_texts_of_the_environment_are_taken(name: str, text: str, value: str | bool) -> None:
    found = load(environment={f"PAYRES_{name.upper()}": text})
    assert [getattr(one, name) for one in (found, *found.groups) if hasattr(one, name)] == [value]


@pytest.mark.parametrize(
    ("name", "texts", "sentence"),
    [
        ("admin_hosts", ("10.0.0.1/8", "10.0.0.256", "http://localhost", "a b", "*", "name:8080"), HOSTS),
        (
            "trusted_proxies",
            ("*", "a.example", "127.0.0.1 ::1", "10.0.0.1/8"),
            "must be IP addresses and networks with",
        ),
        ("ilp_address", ("payres", "g.a\n", f"g.{'a' * 799}"), "is not an ILP address such as test.payres"),
        ("allow_private_hosts", ("yes", "", "2"), "is not allowed: it must be true or false"),
        ("base_url", ("pay.example", "ftp://pay.example", "https://", "https://pay.example?x=1"), "must be an http or"),
        (
            "base_url",
            ("https://pay.example/#a", "https://user@pay.example", "https://pay .example"),
            "must be an http or",
        ),
        ("name", ("x" * 61, "a\nb", "Pay\u200cres", "a\u202eb"), "must be a name of at most 60 characters"),
        ("rates_url", ("ftp://rates.example", "https://rates.example/#usd"), "must be an http or https URL, or empty"),
        ("base_url", ("https://pay.example/api", "https://pay.example/a/b"), "must have no path"),
        *((name, ("",), "is not allowed: it must be text, and not empty") for name in ("base_url", "ilp_address")),
    ],
)
def test_texts_that_are_none_are_refused(name: str, texts: Sequence[str], sentence: str) -> None:
    for text in texts:
        with pytest.raises(SettingsError, match=f"^PAYRES_{name.upper()} = .* {sentence}") as error:
            load(environment={f"PAYRES_{name.upper()}": text})
        assert repr(text) in str(error.value)


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


@pytest.mark.parametrize(
    ("flags", "environment", "file", "named"),
    [
        ({"colour": "red"}, {}, "", "colour (flag)"),
        ({}, {"PAYRES_COLOUR": "red"}, "", "PAYRES_COLOUR (environment)"),
        ({}, {}, 'colour = "red"', "colour (payres.toml)"),
        ({}, {}, "[payres]\nport = 1", "payres (payres.toml)"),
        ({"base_ulr": "x"}, {}, "", "base_ulr (flag)"),
    ],
)
def test_unknown_setting_stops_the_start_with_those_there_are(
    empty_directory: Path, flags: dict[str, object], environment: dict[str, str], file: str, named: str
) -> None:
    (empty_directory / "payres.toml").write_text(file)
    with pytest.raises(SettingsError) as error:
        load(flags, environment)
    near = "; the nearest is base_url" if "base_ulr" in flags else ""
    assert str(error.value) == f"{named} is not a setting{near}; the settings are: {', '.join(ALL_SETTINGS)}"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        *((f"port = {value}", "it must be a whole number from 0 to 65535") for value in ('"1"', "1.0")),
        ('allow_private_hosts = "true"', "it must be true or false"),
        ("metrics_token = 5", "it must be text, in quotes"),
        *((content, "it must be text, and not empty") for content in ("database = 5", 'database = ""', "host = []")),
    ],
)
def test_file_has_types(empty_directory: Path, content: str, sentence: str) -> None:
    (empty_directory / "payres.toml").write_text(content)
    with pytest.raises(SettingsError, match=rf"payres\.toml.* is not allowed: {sentence}$"):
        load()


@pytest.mark.parametrize("token", ["ä", "a\nb", "a b", 123])
def test_value_of_a_secret_is_shown_in_no_error(empty_directory: Path, token: object) -> None:
    (empty_directory / "payres.toml").write_text(f"metrics_token = {json.dumps(token, ensure_ascii=False)}")
    with pytest.raises(SettingsError, match=r"^metrics_token \(payres\.toml\) (must be of letters|is not allowed)"):
        load()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('smtp_host = "mail.example"', "smtp_host is set, so mail_from must be"),
        ('smtp_user = "us"', "smtp_user is set, so smtp_password_file must name"),
        ("smtp_port = 0", "smtp_port = 0 .* it must be a whole number from 1 to 65535"),
    ],
)
def test_mail_is_set_up_as_a_whole(empty_directory: Path, content: str, sentence: str) -> None:
    (empty_directory / "payres.toml").write_text(content)
    with pytest.raises(SettingsError, match=f"^{sentence}"):
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
