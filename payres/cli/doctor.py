"""`payres doctor`: looks for what is wrong with a server, from its files to its public address, and says what to do."""

import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from payres.cli.commands import Command
from payres.cli.session import Session, with_session
from payres.clock import SECOND, format_time
from payres.operator.doctor import Finding, examine
from payres.settings import Settings, local_url
from payres.store.connections import changed_at, is_served
from payres.store.status import takeover
from payres.store.wallets import list_wallets
from payres.urls import Urls, is_loopback

if TYPE_CHECKING:  # it loads slowly, and only this command needs it
    import httpx2

TIMEOUT_SECONDS: Final = 10
CLOCK_SECONDS: Final = 5  # how far a clock may be off; not much more and signatures are rejected
# A certificate with less left than these days, and than this part of its lifetime, was not renewed when it should be.
CERTIFICATE_SECONDS: Final = 14 * 86400
CERTIFICATE_PART: Final = 6
STANDBY_SECONDS: Final = 300  # without a change, after which something is likely to be wrong


@click.command(cls=Command, example="payres doctor")
@with_session
def doctor(session: Session) -> None:
    """It checks the files, the money and the links in the database, the server on this machine, and its public address
    as clients see it: TLS, redirects, the clock. The exit code is 1 when something should be fixed.
    """
    findings = [*session.read(examine), *_clock()]
    if session.is_standby:
        findings.append(_standby(session))
    elif session.read(takeover) is None:
        findings += _server(session)
    bad = [finding for finding in findings if finding.fix is not None]
    session.show(
        {"ok": not bad, "findings": [msgspec.structs.asdict(finding) for finding in findings]},
        "\n".join(map(_text, findings)),
    )
    if bad:
        raise SystemExit(1)


def _text(finding: Finding) -> str:
    line = f"{'ok ' if finding.fix is None else 'FIX'}  {finding.subject}: {finding.seen}"
    return line if finding.fix is None else f"{line}\n     {finding.fix}"


def _clock() -> Iterator[Finding]:
    """Whether the clock is synchronized, where systemd knows."""
    command = shutil.which("timedatectl")
    if command is None:
        return
    try:
        asked = subprocess.run(  # noqa: S603 - a fixed command
            [command, "show", "--property=NTPSynchronized", "--value"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return
    if asked.stdout.strip() in {"yes", "no"}:
        fix = "Signatures carry the time: switch an NTP client on, with `timedatectl set-ntp true` say"
        is_right = asked.stdout.strip() == "yes"
        seen = f"the clock of this machine is {'' if is_right else 'not '}synchronized"
        yield Finding("clock", seen, None if is_right else fix)


def _server(session: Session) -> Iterator[Finding]:
    """Whether the server runs here and can take payments, and what clients see of it."""
    settings = session.settings
    if not is_served(settings.database):
        seen = f"no server has {settings.database}"
        yield Finding("server", seen, "Start it: `payres serve`")
        return
    url = f"{local_url(settings.host, settings.port)}/readyz"
    answer = _get(url)
    if isinstance(answer, str):
        fix = "Give this command the settings of the server: host and port, or its payres.toml in this folder"
        yield Finding("server", f"it runs, but {url} does not answer: {answer}", fix)
    elif answer.status_code == 200:
        yield Finding("server", f"it runs and can take payments ({url})")
    else:
        yield Finding("server", f"it cannot take payments: {answer.text}", "Read docs/operating.md on health")
    yield from _public(session)


def _standby(session: Session) -> Finding:
    """Litestream can stop following without a word, and the primary changes something every half a minute."""
    now, changed = session.environment.clock.now(), changed_at(session.settings.database)
    seen = "never" if changed is None else f"at {format_time(changed)}"
    is_late = changed is None or changed < now - STANDBY_SECONDS * SECOND
    fix = "Restart what follows, litestream-follow say, and see whether Litestream runs on the primary: docs/backup.md"
    return Finding("standby", f"Litestream last brought a change {seen}", fix if is_late else None)


def _public(session: Session) -> Iterator[Finding]:
    """What clients see at the base URL."""
    settings, urls = session.settings, session.environment.urls
    answer = _ask("OPTIONS", urls.auth_server)
    if isinstance(answer, str):
        fix = "Clients reach the server there: check the name, the proxy and its certificate"
        yield Finding("public address", f"{urls.auth_server} does not answer: {answer}", fix)
        return
    yield _identity(urls, answer)
    yield from _paths(session)
    yield from _connections(settings, urls.auth_server)
    yield from _transport(settings, answer)


def _identity(urls: Urls, answer: "httpx2.Response") -> Finding:
    """Clients sign the URL that they use, and the server checks that against base_url."""
    fix = f"Let the proxy hand on everything under {urls.base} unchanged, and set base_url to what clients use"
    if answer.is_redirect:
        return Finding("public address", f"{answer.url} redirects to {answer.headers.get('location')}", fix)
    try:
        found = msgspec.json.decode(answer.content, type=dict[str, object]).get("grant_request_endpoint")
    except (ValueError, RecursionError):
        return Finding("public address", f"{answer.url} is answered {answer.status_code}, and not by payres", fix)
    if found != urls.auth_server:
        return Finding("public address", f"{answer.url} is a payres whose base_url is {found}", fix)
    return Finding("public address", f"{answer.url} is this server")


def _paths(session: Session) -> Iterator[Finding]:
    """Paths must arrive as they were signed."""
    wallets: Sequence[str] = session.read(lambda work: [one.path for one in list_wallets(work) if one.active][:1])
    for path in wallets:
        url = f"{session.environment.urls.wallet(path)}/"
        answer = _get(url)
        if not isinstance(answer, str) and answer.status_code != 200:
            fix = "The proxy must not redirect, strip or add slashes: clients sign the path as they send it"
            yield Finding("paths", f"{url} is answered {answer.status_code}", fix)


def _connections(settings: Settings, url: str) -> Iterator[Finding]:
    """Whether connections are kept open between requests, and for how long their certificate is good."""
    import httpx2

    used: list[object] = []
    certificate = None
    with suppress(httpx2.HTTPError), httpx2.Client(timeout=TIMEOUT_SECONDS) as client:
        for _ in range(2):
            with client.stream("OPTIONS", url) as answer:
                stream = answer.extensions["network_stream"]
                used.append(stream.get_extra_info("client_addr"))
                connection = stream.get_extra_info("socket")
                certificate = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
                answer.read()
    if len(used) < 2 or used[0] != used[1]:
        fix = (
            "Let the proxy keep the connections of clients open between requests, with HTTP/1.1 or later: nginx's"
            " keepalive_timeout, Caddy's timeouts idle. Now each request waits for a new connection, and for its TLS"
        )
        yield Finding("keep-alive", f"{url} closes the connection of a client after one answer", fix)
    else:
        yield Finding("keep-alive", f"{url} answers two requests on one connection{_kept(settings)}")
    if certificate:
        yield _certificate(certificate)


def _certificate(certificate: Mapping[str, Any]) -> Finding:
    start, end = (ssl.cert_time_to_seconds(certificate[name]) for name in ("notBefore", "notAfter"))
    fix = "Renew the certificate; a proxy such as Caddy does so by itself"
    is_late = end - time.time() < min((end - start) // CERTIFICATE_PART, CERTIFICATE_SECONDS)
    return Finding("TLS", f"the certificate is good until {format_time(end * SECOND)}", fix if is_late else None)


def _kept(settings: Settings) -> str:
    """What follows where a proxy may have connections to the server: one that both end at once loses a request."""
    url = local_url(settings.host, settings.port)
    answer = None if settings.base_url == url else _get(f"{url}/healthz")
    if answer is None or isinstance(answer, str) or "keep-alive" not in answer.headers:
        return ""
    seconds = answer.headers["keep-alive"].removeprefix("timeout=")
    return f"; the server closes idle ones after {seconds} seconds, so the proxy must close its own earlier"


def _transport(settings: Settings, answer: "httpx2.Response") -> Iterator[Finding]:
    with suppress(KeyError, ValueError, OverflowError):  # without a time, or with none that can be read
        off = abs(parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time())
        fix = "Set the clocks of this machine and of its proxy right: signatures carry the time"
        if off > CLOCK_SECONDS:
            yield Finding("clock", f"the proxy's clock is {off:.0f} seconds off", fix)
    if not is_loopback(answer.url.host) and not isinstance(seen := _get(f"{settings.base_url}/metrics"), str):
        fix = "The proxy must send X-Forwarded-For, or the Host that clients use: without, others count as this machine"
        if seen.status_code == 200 and not settings.metrics_token:
            yield Finding("metrics", "everyone can read /metrics at the public address", fix)


def _get(url: str) -> "httpx2.Response | str":
    return _ask("GET", url)


def _ask(method: str, url: str) -> "httpx2.Response | str":
    """The answer, or why there is none."""
    import httpx2

    try:
        with httpx2.Client(timeout=TIMEOUT_SECONDS) as client, client.stream(method, url) as answer:
            answer.read()
            return answer
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        return str(error) or type(error).__name__
