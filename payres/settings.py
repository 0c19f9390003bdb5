"""Settings: flags over `PAYRES_*` environment over `payres.toml` over defaults, each explained in docs/settings.md.

An unknown key or a bad value stops the start with a sentence that names the key, the value and what is allowed.
"""

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from payres.ilp_addresses import is_ilp_address
from payres.limits import (
    DEFAULT_BODY_BYTES,
    DEFAULT_RATE_PER_ADDRESS,
    DEFAULT_RATE_PER_CLIENT,
    DEFAULT_RATE_PER_PEER,
    DEFAULT_RATE_UNAUTHENTICATED,
)
from payres.logs import LogFormat
from payres.urls import is_http_url

PREFIX = "PAYRES_"
Seconds = Annotated[int, msgspec.Meta(ge=1, le=10 * 365 * 86400)]
MaybeSeconds = Annotated[int, msgspec.Meta(ge=0, le=86400)]
RatesAge = Annotated[int, msgspec.Meta(ge=10, le=86400)]
Rate = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
WANTED = {bool: "it must be true or false", Text: "it must not be empty", LogFormat: "it must be text or json"}
RENAMED = {"rate_limit_of_strangers": "rate_limit_unauthenticated"}  # the files of earlier versions have it
HOST_NAME = re.compile(r"(?=.*[a-z])[a-z0-9-]+(?:\.[a-z0-9-]+)*")


class SettingsError(ValueError):
    """A setting is unknown or its value is not allowed; the text names it, and the values allowed."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Lifetimes and ages are seconds, sizes are bytes."""

    base_url: Text = "http://127.0.0.1:8080"
    database: Text = "payres.db"
    host: Text = "127.0.0.1"
    port: Port = 8080
    ilp_address: Text = "test.payres"
    continue_wait: MaybeSeconds = 5
    access_token_lifetime: Seconds = 600
    interaction_lifetime: Seconds = 600
    quote_lifetime: Seconds = 900
    incoming_payment_lifetime: Seconds = 2592000
    signature_max_age: Seconds = 300
    allow_private_hosts: bool = False
    max_body_bytes: Annotated[int, msgspec.Meta(ge=1024, le=16 * 1024 * 1024)] = DEFAULT_BODY_BYTES
    rate_limit_per_client: Rate = DEFAULT_RATE_PER_CLIENT
    rate_limit_per_address: Rate = DEFAULT_RATE_PER_ADDRESS
    rate_limit_unauthenticated: Rate = DEFAULT_RATE_UNAUTHENTICATED
    rate_limit_per_peer: Rate = DEFAULT_RATE_PER_PEER
    trusted_proxies: str = "127.0.0.1"
    admin_hosts: str = ""
    backup_directory: str = ""
    rates_url: str = ""
    rates_max_age: RatesAge = 300
    metrics_token: str = ""
    log_format: LogFormat = "text"
    read_only: bool = False

    @property
    def effective_quote_lifetime(self) -> int:
        """Seconds that a quote is valid: an owner who decides in time must not approve one that has expired."""
        return max(self.quote_lifetime, self.interaction_lifetime)


def load_settings(
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    """The effective settings. `file` is read when given or when `payres.toml` is in the working directory.

    If host or port is set and `base_url` is not, it is made of them, so that a second server needs one setting only.
    Raises SettingsError.
    """
    environ = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    for origin, found in (
        _read_file(environ, file),
        ("environment", _read_environment(environ)),
        ("flag", {k: v for k, v in (flags or {}).items() if v is not None}),
    ):
        for written in sorted(found, key=RENAMED.__contains__, reverse=True):  # the new name counts, if both are there
            values[RENAMED.get(written, written)] = _checked(origin, written, found[written])
    if "base_url" not in values and ("port" in values or "host" in values):
        values["base_url"] = local_url(values.get("host", "127.0.0.1"), values.get("port", 8080))
    return Settings(**values)


def local_url(host: str, port: int) -> str:
    """The URL of a server that listens there, for programs on its machine."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - a comparison, not a bind
    bracketed = f"[{reachable}]" if ":" in reachable and not reachable.startswith("[") else reachable
    return f"http://{bracketed}:{port}"


def _read_file(environment: Mapping[str, str], file: Path | None) -> tuple[str, Mapping[str, object]]:
    named = file or (Path(environment["PAYRES_CONFIG"]) if environment.get("PAYRES_CONFIG") else None)
    path = named or Path("payres.toml")
    if named is None and not path.is_file():
        return str(path), {}
    try:
        return str(path), tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from error


def _read_environment(environment: Mapping[str, str]) -> Mapping[str, object]:
    return {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(PREFIX) and name != "PAYRES_CONFIG"
    }


_FIELDS = {field.name: field for field in msgspec.structs.fields(Settings)}


def _checked(origin: str, name: str, value: object) -> object:
    """The value of one setting as its type, or SettingsError. The environment holds text only, so it is converted."""
    field = _FIELDS.get(RENAMED.get(name, name))
    shown = f"{PREFIX}{name.upper()}" if origin == "environment" else name
    if field is None:
        raise SettingsError(f"{shown} ({origin}) is not a setting; the settings are: {', '.join(_FIELDS)}")
    try:
        converted = msgspec.convert(value, field.type, strict=origin != "environment")
    except msgspec.ValidationError as error:
        wanted = _wanted(field.type) or str(error)
        raise SettingsError(f"{shown} = {value!r} ({origin}) is not allowed: {wanted}") from error
    if name == "base_url":
        return _checked_base_url(shown, origin, str(converted))
    if name == "ilp_address" and not (is_ilp_address(str(converted)) and len(str(converted)) <= 800):
        raise SettingsError(f"{shown} = {value!r} ({origin}) is not an ILP address such as test.payres")
    if name in {"trusted_proxies", "admin_hosts"}:
        return _checked_hosts(shown, origin, str(converted), may_be_names=name == "admin_hosts")
    if name == "rates_url" and converted and ("#" in str(converted) or not is_http_url(str(converted))):
        raise SettingsError(
            f"{shown} = {value!r} ({origin}) must be an http or https URL, or empty for no rates service"
        )
    return converted


def _wanted(kind: Any) -> str | None:
    """The values of a setting of this type, in words; None for types whose own error says that."""
    meta = next((m for m in getattr(kind, "__metadata__", ()) if isinstance(m, msgspec.Meta)), None)
    if meta is not None and meta.le is not None:
        return f"it must be a whole number from {meta.ge} to {meta.le}"
    return WANTED.get(kind)


def _checked_hosts(shown: str, origin: str, text: str, *, may_be_names: bool) -> str:
    """The addresses and networks, and names where these may be, without blanks."""
    hosts = [host.strip().lower() for host in text.split(",") if host.strip()]
    for host in hosts:
        try:
            ipaddress.ip_network(host)
        except ValueError as error:
            if may_be_names and HOST_NAME.fullmatch(host):
                continue
            what = "IP addresses, networks and host names" if may_be_names else "IP addresses and networks"
            sentence = f"{shown} = {text!r} ({origin}) must be {what} with commas between: {error}"
            raise SettingsError(sentence) from error
    return ",".join(hosts)


def _checked_base_url(shown: str, origin: str, url: str) -> str:
    if not (is_http_url(url) and url.isascii()) or "?" in url or "#" in url:
        raise SettingsError(f"{shown} = {url!r} ({origin}) must be an http or https origin such as https://pay.example")
    if url.rstrip("/").count("/") > 2:
        raise SettingsError(
            f"{shown} = {url!r} ({origin}) must have no path: clients expect the authorization server at a root"
        )
    return url.rstrip("/").lower()
