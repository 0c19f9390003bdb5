"""Settings: flags over `PAYRES_*` environment over `payres.toml` over defaults. `cli/payres.toml` explains each.

An unknown key or an invalid value stops the start with a sentence that names the key, the value and what is allowed.
"""

import hashlib
import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from payres.core.process.logs import LogFormat, LogLevel
from payres.core.protocol import limits
from payres.core.protocol.identifiers import is_ilp_address
from payres.core.protocol.urls import canonical_host, is_http_url
from payres.core.protocol.visible import is_visible

COLOUR: Final = re.compile(r"#[0-9a-f]{6}")
LEAST_CONTRAST: Final = 4.5  # WCAG 2.2, 1.4.3
ACCENTS: Final = ("#0b6b57", "#57c9a8")  # as in style.css, for light and dark
# The backgrounds of the accent in style.css, for light and dark: page and card.
GROUNDS: Final = (("#f3f5f4", "#ffffff"), ("#101514", "#19201e"))
SHIELD: Final = (
    '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M12 2 4 5v6c0 5 3.4 9.3 8 11 4.6-1.7 8-6 8-11V5z"/>'
    '<path class="tick" d="m8.2 12 2.7 2.7 5-5.2"/></svg>'
)

MAX_LOGO_BYTES: Final = 128 * 1024
LOGO_TYPES: Final = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
    # After declarations and comments; browsers show no image without the namespace.
    "image/svg+xml": re.compile(rb"[^<]*(?:<[?!][^>]*>[^<]*)*<svg\s[^>]*xmlns=[\"']http://www\.w3\.org/2000/svg[\"']"),
}


class Logo(NamedTuple):
    """An image, and its path, which differs if its content does: browsers keep it for a day."""

    content: bytes
    media_type: str
    path: str


def check_accent(text: str, *, dark: bool = False) -> str:
    """The colour in lower case, or an empty string. Raises ValueError if it is invalid or lacks contrast."""
    colour = text.strip().lower()
    if not colour:
        return ""
    if not COLOUR.fullmatch(colour):
        raise ValueError("must be a colour such as #0b6b57")
    for ground in (*GROUNDS[dark], on_accent(colour, dark=dark)):
        found = contrast(colour, ground)
        if found < LEAST_CONTRAST:
            how = "lighter" if dark else "darker"
            raise ValueError(
                f"cannot be read on {ground}: the contrast is {found:.1f}, and 4.5 is needed; choose a {how} one"
            )
    return colour


def on_accent(accent: str, *, dark: bool) -> str:
    """The colour of text on the accent: white, or nearly black in the dark theme."""
    return mixed(accent, "#000000", 0.86) if dark else "#ffffff"


def dark_accent(accent: str) -> str:
    """The accent, lightened for the dark theme."""
    steps = (mixed(accent, "#ffffff", share / 20) for share in range(21))
    return next(one for one in steps if min(contrast(one, ground) for ground in GROUNDS[1]) >= 1.4 * LEAST_CONTRAST)


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21 (WCAG 2.2)."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def mixed(one: str, other: str, share: float) -> str:
    """A colour mixed with a share of another, from 0 to 1."""
    parts = zip(_channels(one), _channels(other), strict=True)
    return "#" + "".join(f"{round(a * (1 - share) + b * share):02x}" for a, b in parts)


def check_logo(path: str) -> str:
    """The path. Raises ValueError if it is not a valid logo."""
    if path:
        logo(path)
    return path


@lru_cache(maxsize=2)
def logo(path: str) -> Logo:
    """The image in a file, which is read once: a new one counts from the next start on. Raises ValueError."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_LOGO_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise ValueError(f"cannot be read: {error}") from error
    if len(content) > MAX_LOGO_BYTES:
        raise ValueError(f"has more than {MAX_LOGO_BYTES} bytes")
    for media_type, beginning in LOGO_TYPES.items():
        if beginning.match(content):
            return Logo(content, media_type, f"/favicon.ico?{hashlib.sha256(content).hexdigest()[:8]}")
    raise ValueError('is neither PNG nor WebP nor SVG, which begins with <svg xmlns="http://www.w3.org/2000/svg"')


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: str) -> float:
    parts = [one / 255 for one in _channels(colour)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


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
    flags: Mapping[str, object] | None = None, environment: Mapping[str, str] | None = None
) -> LoadedSettings:
    """The effective settings. `settings_file` finds their file.

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
        values |= {name: _checked(origin, name, value) for name, value in found.items()}
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


def settings_of_texts(texts: Mapping[str, str]) -> Settings:
    """These settings, each given as text, and defaults. Raises SettingsError."""
    values: dict[str, Any] = {name: _checked("set", name, text) for name, text in texts.items()}
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


def _checked(origin: str, name: str, value: object) -> object:
    """The value of a setting, converted to its type if the origin has only text. Raises SettingsError."""
    field = _FIELDS.get(name)
    shown = f"{PREFIX}{name.upper()}" if origin == "environment" else name
    if field is None:
        near = "".join(f"; the nearest is {one}" for one in get_close_matches(name, _FIELDS, 1))
        raise SettingsError(f"{shown} ({origin}) is not a setting{near}; the settings are: {', '.join(_FIELDS)}")
    try:
        converted = msgspec.convert(value, field.type, strict=origin not in TEXTS)
        return _CHECKS[name](converted) if name in _CHECKS else converted
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
_CHECKS: Mapping[str, Callable[[str], str]] = {
    "base_url": _base_url,
    "database": _database,
    "ilp_address": _ilp_address,
    "time_zone": _time_zone,
    "trusted_proxies": _hosts,
    "admin_hosts": partial(_hosts, may_be_names=True),
    "rates_url": partial(_link, may_have_fragment=False),
    "name": _name,
    "logo": check_logo,
    "accent": check_accent,
    "accent_dark": partial(check_accent, dark=True),
    "help_url": _link,
    "terms_url": _link,
    "privacy_url": _link,
    "security_contact": _contact,
    "mail_from": partial(_contact, is_sender=True),
}
