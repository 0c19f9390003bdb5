"""Settings: flags over `PAYRES_*` environment over `payres.toml` over defaults. `cli/payres.toml` explains each.

An unknown key or an invalid value stops the start with a sentence that names the key, the value and what is allowed.
"""

import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

import msgspec

from payres.core.process.logs import LogFormat, LogLevel
from payres.core.protocol import limits
from payres.core.protocol.identifiers import is_ilp_address
from payres.core.protocol.urls import canonical_host, is_http_url
from payres.core.protocol.visible import is_visible

PREFIX = "PAYRES_"
TEXTS = {"environment", "set"}  # origins whose values are text
CONFIG = "payres.toml"
SYSTEM_CONFIG = Path("/etc/payres") / CONFIG  # of a service, for commands in any folder
Seconds = Annotated[int, msgspec.Meta(ge=1, le=10 * 365 * 86400)]
MaybeSeconds = Annotated[int, msgspec.Meta(ge=0, le=86400)]
RatesAge = Annotated[int, msgspec.Meta(ge=10, le=86400)]
RateLimit = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]
SmtpSecurity = Literal["starttls", "tls", "none"]
WANTED = {
    bool: "it must be true or false",
    str: "it must be text, in quotes",
    NonEmpty: "it must be text, and not empty",
    LogFormat: "it must be text or json",
    LogLevel: "it must be info or debug",
    SmtpSecurity: "it must be starttls, tls or none",
}
EMAIL = re.compile(r"(?=.{1,254}$)[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[a-z0-9-]+(?:\.[a-z0-9-]+)*", re.ASCII | re.IGNORECASE)
HOST_NAME = re.compile(r"(?=.*[a-z])[a-z0-9-]+(?:\.[a-z0-9-]+)*")
# Of the 1023 characters of an ILP address (Interledger RFC 15): payments' addresses begin with it, and are longer.
MAX_ILP_ADDRESS_LENGTH = 800
MAX_NAME_LENGTH = 60
Checks = Mapping[str, Callable[[str], str]]
NO_MORE: Final[Checks] = MappingProxyType({})


class SettingsError(ValueError):
    """A setting is unknown or its value is not allowed; the text names it and the allowed values."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Lifetimes and ages are seconds, sizes are bytes."""

    base_url: NonEmpty = "http://127.0.0.1:8080"
    database: NonEmpty = "payres.db"
    host: NonEmpty = "127.0.0.1"
    port: Port = 8080
    ilp_address: NonEmpty = "test.payres"
    continue_wait: MaybeSeconds = 5
    access_token_lifetime: Seconds = 600
    interaction_lifetime: Seconds = 600
    quote_lifetime: Seconds = 900
    incoming_payment_lifetime: Seconds = 2592000
    signature_max_age: Seconds = 300
    allow_private_hosts: bool = False
    max_body_bytes: Annotated[int, msgspec.Meta(ge=1024, le=16 * 1024 * 1024)] = limits.DEFAULT_BODY_BYTES
    rate_limit_per_client: RateLimit = limits.DEFAULT_RATE_PER_CLIENT
    rate_limit_creations: RateLimit = limits.DEFAULT_RATE_CREATIONS
    rate_limit_per_address: RateLimit = limits.DEFAULT_RATE_PER_ADDRESS
    rate_limit_unauthenticated: RateLimit = limits.DEFAULT_RATE_UNAUTHENTICATED
    rate_limit_per_peer: RateLimit = limits.DEFAULT_RATE_PER_PEER
    time_zone: NonEmpty = "UTC"
    trusted_proxies: str = "127.0.0.1"
    admin_hosts: str = ""
    backup_directory: str = ""
    backup_every: MaybeSeconds = 0
    backup_keep: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 14
    rates_url: str = ""
    rates_max_age: RatesAge = 300
    metrics_token: str = ""
    log_format: LogFormat = "text"
    log_level: LogLevel = "info"
    read_only: bool = False
    name: str = ""
    logo: str = ""
    accent: str = ""
    accent_dark: str = ""
    help_url: str = ""
    terms_url: str = ""
    privacy_url: str = ""
    security_contact: str = ""
    smtp_host: str = ""
    smtp_port: Port = 587
    smtp_security: SmtpSecurity = "starttls"
    smtp_user: str = ""
    smtp_password_file: str = ""
    mail_from: str = ""


class LoadedSettings(Settings, frozen=True, kw_only=True):
    """Settings with the name and the origin of each that is set: a flag, a variable, or the path of a file."""

    origins: tuple[tuple[str, str], ...]


def load_settings(
    flags: Mapping[str, object] | None = None, environment: Mapping[str, str] | None = None, *, checks: Checks = NO_MORE
) -> LoadedSettings:
    """The effective settings. `settings_file` finds their file; `checks` are those of parts.

    If host or port is set but not `base_url`, it is derived from them, so that a second server needs only one setting.
    Raises SettingsError.
    """
    environ = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, found in (
        _read_file(environ),
        ("environment", _read_environment(environ)),
        ("flag", {k: v for k, v in (flags or {}).items() if v is not None}),
    ):
        values |= {name: _checked(origin, name, value, checks) for name, value in found.items()}
        for name in found:
            written = {"environment": f"{PREFIX}{name.upper()}", "flag": f"--{name.replace('_', '-')}"}
            origins[name] = written.get(origin, origin)
    if "base_url" not in values and ("port" in values or "host" in values):
        values["base_url"] = local_url(values.get("host", "127.0.0.1"), values.get("port", 8080))
        origins["base_url"] = "host and port"
    if values.get("backup_every") and not values.get("backup_directory"):
        raise SettingsError("backup_every is set, so backup_directory must name the folder for the backups")
    if values.get("smtp_host") and not values.get("mail_from"):
        raise SettingsError("smtp_host is set, so mail_from must be the address that notices come from")
    return LoadedSettings(**values, origins=tuple(origins.items()))


def settings_of_texts(texts: Mapping[str, str], *, checks: Checks = NO_MORE) -> Settings:
    """These settings, each given as text, and defaults. Raises SettingsError."""
    values: dict[str, Any] = {name: _checked("set", name, text, checks) for name, text in texts.items()}
    return Settings(**values)


def local_url(host: str, port: int) -> str:
    """The URL of a server with this address, for programs on its machine."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - a comparison, not a bind
    bracketed = f"[{reachable}]" if ":" in reachable and not reachable.startswith("[") else reachable
    return f"http://{bracketed}:{port}"


def settings_file(environment: Mapping[str, str] | None = None) -> Path | None:
    """The file in PAYRES_CONFIG, else `payres.toml` in the working directory or /etc/payres; None if there is none.

    The file of a service counts for those who may read it; others can still be clients, or have a server of their own.
    """
    named = (os.environ if environment is None else environment).get("PAYRES_CONFIG")
    if named:
        return Path(named)
    # Not Path.is_file, which raises if this user may not enter the working directory, as after `sudo -u`.
    if os.path.isfile(CONFIG):
        return Path(CONFIG)
    return SYSTEM_CONFIG if os.path.isfile(SYSTEM_CONFIG) and may_read(SYSTEM_CONFIG) else None


def may_read(path: Path) -> bool:
    """Whether the user as whom this runs may read a file."""
    return os.access(path, os.R_OK, effective_ids=True)


def named_by(database: str) -> str | None:
    """The flag, variable or settings file that names this database; None if it is the default.

    Raises SettingsError.
    """
    found = load_settings()
    return dict(found.origins).get("database") if found.database == database else "--database"


def _read_file(environment: Mapping[str, str]) -> tuple[str, Mapping[str, object]]:
    path = settings_file(environment)
    if path is None:
        return CONFIG, {}
    try:
        return str(path), tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        named = " (PAYRES_CONFIG)" if environment.get("PAYRES_CONFIG") else ""
        raise SettingsError(f"{path}{named} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from error


def _read_environment(environment: Mapping[str, str]) -> Mapping[str, object]:
    return {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(PREFIX) and name != "PAYRES_CONFIG"
    }


_FIELDS = {field.name: field for field in msgspec.structs.fields(Settings)}


def _checked(origin: str, name: str, value: object, checks: Checks) -> object:
    """The value of a setting, converted to its type if the origin has only text. Raises SettingsError."""
    field = _FIELDS.get(name)
    shown = f"{PREFIX}{name.upper()}" if origin == "environment" else name
    if field is None:
        near = "".join(f"; the nearest is {one}" for one in get_close_matches(name, _FIELDS, 1))
        raise SettingsError(f"{shown} ({origin}) is not a setting{near}; the settings are: {', '.join(_FIELDS)}")
    try:
        converted = msgspec.convert(value, field.type, strict=origin not in TEXTS)
        check = _CHECKS.get(name) or checks.get(name)
        return check(converted) if check else converted
    except ValueError as error:
        wrong = str(error)
        if isinstance(error, msgspec.ValidationError):
            wrong = f"is not allowed: {_wanted(field.type) or wrong}"
        raise SettingsError(f"{shown} = {value!r} ({origin}) {wrong}") from error


def _wanted(kind: Any) -> str | None:
    """The allowed values of a setting of this type, in words; None if the type's own error names them."""
    meta = next((m for m in getattr(kind, "__metadata__", ()) if isinstance(m, msgspec.Meta)), None)
    if meta is not None and meta.le is not None:
        return f"it must be a whole number from {meta.ge} to {meta.le}"
    return WANTED.get(kind)


def _base_url(url: str) -> str:
    if not (is_http_url(url) and url.isascii()) or "?" in url or "#" in url:
        raise ValueError("must be an http or https origin such as https://pay.example")
    if url.rstrip("/").count("/") > 2:
        raise ValueError("must have no path: clients expect the authorization server at a root")
    return url.rstrip("/").lower()


def _database(path: str) -> str:
    if os.path.isdir(path):  # also False without permission to look
        raise ValueError("is a directory; name the database file in it, such as payres.db")
    return path


def _ilp_address(address: str) -> str:
    if len(address) > MAX_ILP_ADDRESS_LENGTH or not is_ilp_address(address):
        raise ValueError("is not an ILP address such as test.payres")
    return address


def _hosts(text: str, *, may_be_names: bool = False) -> str:
    """The addresses, networks and, if allowed, names, without blanks."""
    hosts = [host.strip().lower() for host in text.split(",") if host.strip()]
    for host in hosts:
        try:
            ipaddress.ip_network(host)
        except ValueError as error:
            if may_be_names and HOST_NAME.fullmatch(host):
                continue
            what = "IP addresses, networks and host names" if may_be_names else "IP addresses and networks"
            raise ValueError(f"must be {what} with commas between: {error}") from error
    return ",".join(hosts)


def _time_zone(name: str) -> str:
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name).key if name != "UTC" else name
    except (OSError, ValueError, KeyError) as error:
        raise ValueError("is not a time zone that this machine knows, such as Europe/Berlin") from error


def _link(url: str, *, may_have_fragment: bool = True) -> str:
    if url and not (is_http_url(url) and (may_have_fragment or "#" not in url)):
        raise ValueError("must be an http or https URL, or empty")
    return url


def _name(text: str) -> str:
    if len(text) > MAX_NAME_LENGTH or not is_visible(text):
        raise ValueError(f"must be a name of at most {MAX_NAME_LENGTH} characters")
    return text.strip()


def mail_address(text: str) -> str | None:
    """An e-mail address with its domain in ASCII (RFC 5891); None if it is none."""
    name, _, domain = text.rpartition("@")
    address = f"{name}@{domain if domain.isascii() else canonical_host(domain.lower())}"
    return address if EMAIL.fullmatch(address) else None


def _contact(text: str, *, is_sender: bool = False) -> str:
    if not text or (is_http_url(text) and not is_sender):
        return text
    address = mail_address(text.removeprefix("mailto:"))
    if address is None:
        raise ValueError("must be an e-mail address" + ("" if is_sender else " or an https URL"))
    return address if is_sender else f"mailto:{address}"


# Checks beyond the types of settings; each raises ValueError with the text after the name and the value.
_CHECKS: Checks = {
    "base_url": _base_url,
    "database": _database,
    "ilp_address": _ilp_address,
    "time_zone": _time_zone,
    "trusted_proxies": _hosts,
    "admin_hosts": partial(_hosts, may_be_names=True),
    "rates_url": partial(_link, may_have_fragment=False),
    "name": _name,
    "help_url": _link,
    "terms_url": _link,
    "privacy_url": _link,
    "security_contact": _contact,
    "mail_from": partial(_contact, is_sender=True),
}
