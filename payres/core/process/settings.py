"""Settings: flags over `PAYRES_*` environment over `payres.toml` over defaults. `cli/payres.toml` explains each.

The core's are here. Those of a part are a group of their own, a struct in the part, which `payres/settings.py` lists.
The type of a setting may have a check: a function in its annotation, which returns the value as it counts, or raises
ValueError with what is wrong. An unknown key or an invalid value stops the start with a sentence that names the key,
the value and what is allowed.
"""

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args

import msgspec
from msgspec import Meta, inspect
from msgspec.structs import FieldInfo

from payres.core.process.logs import LogFormat, LogLevel
from payres.core.protocol import limits
from payres.core.protocol.urls import is_http_url

PREFIX = "PAYRES_"
TEXTS = {"environment", "set"}  # origins whose values are text
CONFIG = "payres.toml"
SYSTEM_CONFIG = Path("/etc/payres") / CONFIG  # of a service, for commands in any folder
Groups = Sequence[type[msgspec.Struct]]
G = TypeVar("G", bound=msgspec.Struct)
HOST_NAME = r"(?=.*[a-z])[a-z0-9-]+(?:\.[a-z0-9-]+)*"


class SettingsError(ValueError):
    """A setting is unknown or its value is not allowed; the text names it and the allowed values."""


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


def checked_hosts(text: str, *, may_be_names: bool = False) -> str:
    """The addresses, networks and, if allowed, names, without blanks."""
    hosts = [host.strip().lower() for host in text.split(",") if host.strip()]
    for host in hosts:
        try:
            ipaddress.ip_network(host)
        except ValueError as error:
            if may_be_names and re.fullmatch(HOST_NAME, host):
                continue
            what = "IP addresses, networks and host names" if may_be_names else "IP addresses and networks"
            raise ValueError(f"must be {what} with commas between: {error}") from error
    return ",".join(hosts)


def checked_link(url: str, *, may_have_fragment: bool = True) -> str:
    """A URL of another server, or nothing."""
    if url and not (is_http_url(url) and (may_have_fragment or "#" not in url)):
        raise ValueError("must be an http or https URL, or empty")
    return url


Seconds = Annotated[int, Meta(ge=1, le=10 * 365 * 86400)]
MaybeSeconds = Annotated[int, Meta(ge=0, le=86400)]
RateLimit = Annotated[int, Meta(ge=0, le=1_000_000)]
Port = Annotated[int, Meta(ge=0, le=65535)]
NonEmpty = Annotated[str, Meta(min_length=1)]
BaseUrl = Annotated[NonEmpty, _base_url]
DatabasePath = Annotated[NonEmpty, _database]
Networks = Annotated[str, checked_hosts]


SECRET: Final = object()  # beside the type of a setting whose value is shown to nobody


class CoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the core. Lifetimes and ages are seconds, sizes are bytes."""

    base_url: BaseUrl = "http://127.0.0.1:8080"
    database: DatabasePath = "payres.db"
    host: NonEmpty = "127.0.0.1"
    port: Port = 8080
    continue_wait: MaybeSeconds = 5
    access_token_lifetime: Seconds = 600
    interaction_lifetime: Seconds = 600
    quote_lifetime: Seconds = 900
    incoming_payment_lifetime: Seconds = 2592000
    signature_max_age: Seconds = 300
    allow_private_hosts: bool = False
    max_body_bytes: Annotated[int, Meta(ge=1024, le=16 * 1024 * 1024)] = limits.DEFAULT_BODY_BYTES
    rate_limit_per_client: RateLimit = limits.DEFAULT_RATE_PER_CLIENT
    rate_limit_creations: RateLimit = limits.DEFAULT_RATE_CREATIONS
    rate_limit_per_address: RateLimit = limits.DEFAULT_RATE_PER_ADDRESS
    rate_limit_unauthenticated: RateLimit = limits.DEFAULT_RATE_UNAUTHENTICATED
    trusted_proxies: Networks = "127.0.0.1"
    log_format: LogFormat = "text"
    log_level: LogLevel = "info"
    read_only: bool = False


class Settings(CoreSettings, frozen=True, kw_only=True):
    """The settings of the core and of parts, with the name and the origin of each that is set: a flag, a variable, or
    the path of a file."""

    groups: tuple[msgspec.Struct, ...] = ()
    origins: tuple[tuple[str, str], ...] = ()

    def of(self, group: type[G]) -> G:
        """The settings of a part; their defaults if none are given."""
        return next((one for one in self.groups if isinstance(one, group)), None) or group()


def load_settings(
    flags: Mapping[str, object] | None = None, environment: Mapping[str, str] | None = None, *, groups: Groups = ()
) -> Settings:
    """The effective settings. `settings_file` finds their file.

    If host or port is set but not `base_url`, it is derived from them, so that a second server needs only one setting.
    Raises SettingsError.
    """
    environ = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    fields = fields_of(groups)
    for origin, found in (
        _read_file(environ),
        ("environment", _read_environment(environ)),
        ("flag", {k: v for k, v in (flags or {}).items() if v is not None}),
    ):
        for name, value in found.items():
            values[name] = _checked(origin, name, value, fields)
            written = {"environment": f"{PREFIX}{name.upper()}", "flag": f"--{name.replace('_', '-')}"}
            origins[name] = written.get(origin, origin)
    if "base_url" not in values and ("port" in values or "host" in values):
        values["base_url"] = local_url(values.get("host", "127.0.0.1"), values.get("port", 8080))
        origins["base_url"] = "host and port"
    return _grouped(values, groups, origins)


def settings_with(values: Mapping[str, object], *, groups: Groups = ()) -> Settings:
    """These settings, of which each may be given as text, and defaults. Raises SettingsError."""
    fields = fields_of(groups)
    return _grouped({name: _checked("set", name, value, fields) for name, value in values.items()}, groups, {})


def fields_of(groups: Groups) -> Mapping[str, FieldInfo]:
    """Each setting of the core and of these groups, by its name."""
    kinds: Groups = (CoreSettings, *groups)
    return {field.name: field for kind in kinds for field in msgspec.structs.fields(kind)}


def is_secret(field: FieldInfo) -> bool:
    """Whether nobody is shown the value of a setting."""
    return SECRET in getattr(field.type, "__metadata__", ())


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


def _checked(origin: str, name: str, value: object, fields: Mapping[str, FieldInfo]) -> object:
    """The value of a setting in its type. Raises SettingsError."""
    field = fields.get(name)
    shown = f"{PREFIX}{name.upper()}" if origin == "environment" else name
    if field is None:
        near = "".join(f"; the nearest is {one}" for one in get_close_matches(name, fields, 1))
        raise SettingsError(f"{shown} ({origin}) is not a setting{near}; the settings are: {', '.join(fields)}")
    try:
        found = msgspec.convert(value, field.type, strict=origin not in TEXTS)
        for check in filter(callable, getattr(field.type, "__metadata__", ())):
            found = check(found)
    except ValueError as error:
        wrong = f"is not allowed: it must be {_wanted(field.type)}"
        said = wrong if isinstance(error, msgspec.ValidationError) else error
        text = "" if is_secret(field) else f" = {value!r}"
        raise SettingsError(f"{shown}{text} ({origin}) {said}") from error
    return found


def _wanted(kind: object) -> str:
    match inspect.type_info(kind):
        case inspect.IntType(ge=least, le=most):
            return f"a whole number from {least} to {most}"
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType():
            *others, last = get_args(kind)
            return f"{', '.join(others)} or {last}"
        case inspect.StrType(min_length=1):
            return "text, and not empty"
    return "text, in quotes"


def _grouped(values: Mapping[str, Any], groups: Groups, origins: Mapping[str, str]) -> Settings:
    """Each value in the group that has this setting."""

    def own(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
        return {name: values[name] for name in kind.__struct_fields__ if name in values}

    made = tuple(group(**own(group)) for group in groups)
    return Settings(**own(CoreSettings), groups=made, origins=tuple(origins.items()))
