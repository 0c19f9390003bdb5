"""The doctor: finds problems, present and coming, in a server's files, money and links, and at its public address, and
says how to fix them."""

import os
import shutil
import ssl
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from itertools import chain, combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from payres.amounts import Asset, format_decimal
from payres.clock import DAY, SECOND, format_time
from payres.limits import MIN_FREE_BYTES
from payres.operator.backups import AFTER_TAKEOVER, describe
from payres.operator.shapes import MEBIBYTE, format_size
from payres.settings import Settings, local_url, settings_file
from payres.store import assets, events, peers, status, wallets
from payres.store.accounts import LOW_PART
from payres.store.connections import changed_at, free_bytes, is_served, log_bytes
from payres.store.peers import PeerRecord
from payres.store.work import Environment, Work
from payres.urls import is_loopback

if TYPE_CHECKING:  # it loads slowly, and only who looks from outside needs it
    import httpx2

LOW_FREE_BYTES: Final = 10 * MIN_FREE_BYTES
LARGE_LOG_BYTES: Final = 256 * MEBIBYTE
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
BACKUP_DAYS: Final = 2
CHECK_DAYS: Final = 1  # more than a server takes for tens of millions of payments
TIMEOUT_SECONDS: Final = 10
CLOCK_SECONDS: Final = 5  # how far a clock may be off; not much more and signatures are rejected
# A certificate with less left than these days, and than this part of its lifetime, was not renewed when it should be.
CERTIFICATE_SECONDS: Final = 14 * 86400
CERTIFICATE_PART: Final = 6
STANDBY_SECONDS: Final = 300  # without a change, after which something is likely to be wrong

# The subject, what was seen of it, whether that is wrong, and what to do then.
Look = tuple[str, str, object, str]
Read = Callable[[Callable[[Work], Any]], Any]


class Finding(msgspec.Struct, frozen=True):
    """A checked subject and its state; `fix` says what to do, None if nothing is wrong. A `warning` may be no
    fault."""

    subject: str
    seen: str
    fix: str | None = None
    warning: bool = False


def examine(work: Work) -> Sequence[Finding]:
    """The findings about the database and the settings; of one that was replaced, only that it was. Raises OSError."""
    taken = status.takeover(work)
    if taken is not None:
        return [Finding("database", f"another server has taken this one's place: {describe(taken)}", AFTER_TAKEOVER)]
    looks = (_files, _backups, _ledger, _settings, _rates, _liquidity, _peers, _webhooks)
    return _findings(found for look in looks for found in look(work))


def examine_all(read: Read, environment: Environment, *, is_standby: bool) -> Sequence[Finding]:
    """The findings of `examine`, and those about this machine, the running server or a standby's replication, what
    clients see of the server and of a wallet, and the servers of peers. For a replaced database, only those about the
    data and the machine. Raises OSError."""

    def unit(work: Work) -> tuple[Sequence[Finding], bool, str | None, Sequence[PeerRecord]]:
        wallet = next((one.path for one in wallets.list_wallets(work) if one.active), None)
        return examine(work), status.takeover(work) is not None, wallet, peers.list_peers(work)

    found, is_replaced, wallet, linked = read(unit)
    served = chain(_server(environment, wallet), *map(_reach, linked))
    others = _followed(environment) if is_standby else () if is_replaced else served
    return [*found, *_clock(), *_findings(others)]


def _findings(looks: Iterable[Look]) -> Sequence[Finding]:
    return [Finding(subject, seen, fix if is_wrong else None) for subject, seen, is_wrong, fix in looks]


def _files(work: Work) -> Iterator[Look]:
    path = Path(work.settings.database).absolute()
    mode, free, log = stat.S_IMODE(os.stat(path).st_mode), free_bytes(path.parent), log_bytes(str(path))
    yield "permissions", f"{path} has mode {mode:04o}", mode & OTHERS, f"It holds secrets: chmod 600 {path}"
    config = settings_file()
    if config is not None and work.settings.metrics_token:
        mode = stat.S_IMODE(os.stat(config).st_mode)
        fix = f"It may hold metrics_token, a secret: chmod 600 {config}"
        yield "settings file", f"{config} has mode {mode:04o}", mode & OTHERS, fix
    fix = f"Make room: below {format_size(MIN_FREE_BYTES)} no payments are taken"
    yield "disk", f"{format_size(free)} are free in {path.parent}", free < LOW_FREE_BYTES, fix
    fix = "Something has kept one state of the database open for long: end it, a backup tool or a shell of SQLite"
    yield "write-ahead log", f"the write-ahead log has {format_size(log)}", log > LARGE_LOG_BYTES, fix


def _backups(work: Work) -> Iterator[Look]:
    directory, made_at, earliest = (
        work.settings.backup_directory,
        status.last_backup(work),
        work.now - BACKUP_DAYS * DAY,
    )
    if directory and not (os.path.isdir(directory) and os.access(directory, os.W_OK)):
        fix = "The operator's API can make no backups: make it, or name another one in backup_directory"
        yield "backup_directory", f"{directory} is not a directory that payres may write to", True, fix
    if made_at is None:
        fix = "Make one with `payres backup`, or let Litestream copy the database: docs/how-to/backup.md"
        is_needed = not is_loopback(work.urls.host) or _has_money_since(work, earliest)
        yield "backup", "payres has made none", is_needed, fix
    else:
        fix = "Make backups daily: docs/how-to/backup.md says how"
        yield "backup", f"the last one was made at {format_time(made_at)}", made_at < earliest, fix


def _ledger(work: Work) -> Iterator[Look]:
    broken, checked_at, earliest = status.broken_invariant(work), status.last_check(work), work.now - CHECK_DAYS * DAY
    fix = (
        "Check it with `payres ledger check`. A running server does so all the time: when it does not, its log says why"
    )
    if broken is not None:
        fix = "Take no payments until it does: docs/operating.md"
        yield "ledger", f"its invariant `{broken}` did not hold", True, fix
    elif checked_at is not None:
        yield "ledger", f"all its invariants held at {format_time(checked_at)}", checked_at < earliest, fix
    else:
        yield "ledger", "it was not checked yet", _has_money_since(work, earliest), fix


def _has_money_since(work: Work, time: int) -> bool:
    """Whether money was moved then, or earlier."""
    first = status.first_transfer(work)
    return first is not None and first < time


def _liquidity(work: Work) -> Iterator[Look]:
    for code, scale, balance in status.low_liquidity(work):
        seen = f"{format_decimal(balance, Asset(code, scale))} is left, little of what there was"
        fix = f"Put more in with `payres liquidity deposit {code} {scale} AMOUNT`, or payments into it fail"
        yield f"liquidity {code}", seen, True, fix


def _settings(work: Work) -> Iterator[Look]:
    seen = f"base_url is {work.settings.base_url}"
    if is_loopback(work.urls.host):
        yield "base URL", f"{seen}: only this machine reaches it", False, ""
        return
    fix = "Clients expect https: put a proxy with TLS in front and set base_url to its URL"
    yield "base URL", seen, work.settings.base_url.startswith("http:"), fix
    if work.settings.allow_private_hosts:
        fix = "Set it to false: anyone can make the server send requests inside your network"
        yield "allow_private_hosts", "it is on, and base_url is public", True, fix


def _rates(work: Work) -> Iterator[Look]:
    codes = assets.list_codes(work)
    good = {frozenset((rate.base, rate.counter)) for rate in assets.list_rates(work) if rate.holds_at(work.now)}
    lacking = ["/".join(pair) for pair in combinations(codes, 2) if frozenset(pair) not in good]
    if len(codes) > 1:
        seen = f"no valid rate for {', '.join(lacking)}" if lacking else "there is a valid rate between all currencies"
        fix = "Set one with `payres rate set`, or a service with rates_url, unless nobody is to pay across them"
        yield "exchange rates", seen, lacking, fix


def _peers(work: Work) -> Iterator[Look]:
    for peer in peers.list_peers(work):
        subject = f"peer {peer.name}"
        if peer.balance - peer.held - peer.floor < -peer.floor // LOW_PART:
            owed, credit = format_decimal(-peer.balance, peer.asset), format_decimal(-peer.floor, peer.asset)
            fix = "Have it pay, and record that with `payres peer deposit`: beyond its credit, packets are rejected"
            yield subject, f"it owes {owed} of {credit} {peer.asset_code} credit", True, fix
        elif peer.last_error_at is not None and peer.last_error_at > work.now - DAY:
            fix = f"`payres peer show {peer.name}` shows what is set: compare it with its operator"
            yield subject, f"at {format_time(peer.last_error_at)}: {peer.last_error}", True, fix
    unresolved = status.count_unresolved_packets(work)
    if unresolved:
        fix = "List them with `payres peer unresolved NAME` and resolve each with its peer"
        yield "packets", f"{unresolved} unresolved", True, fix


def _webhooks(work: Work) -> Iterator[Look]:
    for webhook in events.list_webhooks(work):
        if not webhook.active:
            fix = f"Once it is there again: `payres webhook test {webhook.id}`, or `payres webhook remove {webhook.id}`"
            yield f"webhook {webhook.url}", "it answered 410 Gone and is disabled", True, fix
        elif webhook.last_error is not None:
            fix = f"`payres webhook deliveries` lists what it did not take, `payres webhook test {webhook.id}` tries it"
            yield f"webhook {webhook.url}", f"the last attempt failed: {webhook.last_error}", True, fix
    failed = status.count_failed_deliveries(work)
    if failed:
        fix = "When the webhooks are well again: `payres webhook replay --failed`"
        yield "events", f"{failed} were not delivered and are not sent again", True, fix


def _clock() -> Iterator[Finding]:
    """Whether the clock is synchronized, where systemd knows: not of a container, or a machine whose host sets it."""
    command = shutil.which("timedatectl")
    if command is None:
        return
    asked = [command, "show", "--property=NTPSynchronized", "--value"]
    with suppress(subprocess.TimeoutExpired):
        said = subprocess.run(asked, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False).stdout  # noqa: S603 - a fixed command
        if said.strip() == "yes":
            yield Finding("clock", "the clock of this machine is synchronized")
        elif said.strip() == "no":
            fix = "Signatures carry the time: unless its host sets it, run an NTP client (`timedatectl set-ntp true`)"
            yield Finding("clock", "no NTP client sets the clock of this machine", fix, warning=True)


def _followed(environment: Environment) -> Iterator[Look]:
    """Litestream can stop following without a word, and the primary changes something every half a minute."""
    changed, earliest = changed_at(environment.settings.database), environment.clock.now() - STANDBY_SECONDS * SECOND
    seen = "never" if changed is None else f"at {format_time(changed)}"
    fix = "Restart what follows, litestream-follow say. Does Litestream run on the primary? docs/how-to/standby.md"
    yield "standby", f"Litestream last brought a change {seen}", changed is None or changed < earliest, fix


def _server(environment: Environment, wallet: str | None) -> Iterator[Look]:
    """Whether the server runs here and can take payments, and what clients see of it."""
    settings = environment.settings
    if not is_served(settings.database):
        yield "server", f"no server has {settings.database}", True, "Start it: `payres serve`"
        return
    url = f"{local_url(settings.host, settings.port)}/readyz"
    answer = _ask("GET", url)
    if isinstance(answer, str):
        fix = "Give this command the settings of the server: host and port, or its payres.toml in this folder"
        yield "server", f"it runs, but {url} does not answer: {answer}", True, fix
    elif answer.status_code == 200:
        yield "server", f"it runs and can take payments ({url})", False, ""
    else:
        yield "server", f"it cannot take payments: {answer.text}", True, "Read docs/operating.md on health"
    yield from _public(environment, wallet)


def _public(environment: Environment, wallet: str | None) -> Iterator[Look]:
    """What clients see at the base URL."""
    settings, urls = environment.settings, environment.urls
    answer = _ask("OPTIONS", urls.auth_server)
    if isinstance(answer, str):
        fix = "Clients reach the server there: check the name, the proxy and its certificate"
        yield "public address", f"{urls.auth_server} does not answer: {answer}", True, fix
        return
    # Clients sign the URL that they use, and the server checks that against base_url.
    fix = f"Let the proxy hand on everything under {urls.base} unchanged, and set base_url to what clients use"
    other = _other(answer, urls.auth_server)
    yield "public address", f"{answer.url} {other or 'is this server'}", other, fix
    if wallet is not None:
        url = f"{urls.wallet(wallet)}/"
        found = _ask("GET", url)
        if not isinstance(found, str) and found.status_code != 200:
            fix = "The proxy must not redirect, strip or add slashes: clients sign the path as they send it"
            yield "paths", f"{url} is answered {found.status_code}", True, fix
    yield from _connections(settings, urls.auth_server)
    yield from _transport(settings, answer)


def _other(answer: "httpx2.Response", auth_server: str) -> str:
    """What answers in place of this server; nothing if it is this one."""
    if answer.is_redirect:
        return f"redirects to {answer.headers.get('location')}"
    try:
        found = msgspec.json.decode(answer.content, type=dict[str, object]).get("grant_request_endpoint")
    except (ValueError, RecursionError):
        return f"is answered {answer.status_code}, and not by payres"
    return "" if found == auth_server else f"is a payres whose base_url is {found}"


def _connections(settings: Settings, url: str) -> Iterator[Look]:
    """Whether connections are kept open between requests, and for how long their certificate is good."""
    import httpx2

    used: list[object] = []
    certificate: Mapping[str, Any] | None = None
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
        yield "keep-alive", f"{url} closes the connection of a client after one answer", True, fix
    else:
        yield "keep-alive", f"{url} answers two requests on one connection{_kept(settings)}", False, ""
    if certificate:
        start, end = (ssl.cert_time_to_seconds(certificate[name]) for name in ("notBefore", "notAfter"))
        is_late = end - time.time() < min((end - start) // CERTIFICATE_PART, CERTIFICATE_SECONDS)
        fix = "Renew the certificate; a proxy such as Caddy does so by itself"
        yield "TLS", f"the certificate is good until {format_time(end * SECOND)}", is_late, fix


def _kept(settings: Settings) -> str:
    """What follows where a proxy may have connections to the server: one that both end at once loses a request."""
    url = local_url(settings.host, settings.port)
    answer = "" if settings.base_url == url else _ask("GET", f"{url}/healthz")
    if isinstance(answer, str) or "keep-alive" not in answer.headers:
        return ""
    seconds = answer.headers["keep-alive"].removeprefix("timeout=")
    return f"; the server closes idle ones after {seconds} seconds, so the proxy must close its own earlier"


def _reach(peer: PeerRecord) -> Iterator[Look]:
    """Whether there is a server at the URL of a peer, even if it takes no such request. No packet is sent."""
    answer = _ask("OPTIONS", peer.url)
    fix = f"Ask its operator; if the URL is another one now, `payres peer change {peer.name} --url URL`"
    if isinstance(answer, str):
        yield f"peer {peer.name}", f"{peer.url} does not answer: {answer}", True, fix
    else:
        seen = f"{peer.url} answers" if answer.status_code < 500 else f"{peer.url} is answered {answer.status_code}"
        yield f"peer {peer.name}", seen, answer.status_code >= 500, fix


def _transport(settings: Settings, answer: "httpx2.Response") -> Iterator[Look]:
    """Whether the proxy has the right time, and says who asks."""
    with suppress(KeyError, ValueError, OverflowError):  # without a time, or with none that can be read
        off = abs(parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time())
        fix = "Set the clocks of this machine and of its proxy right: signatures carry the time"
        if off > CLOCK_SECONDS:
            yield "clock", f"the proxy's clock is {off:.0f} seconds off", True, fix
    if not is_loopback(answer.url.host) and not isinstance(seen := _ask("GET", f"{settings.base_url}/metrics"), str):
        fix = "The proxy must send X-Forwarded-For, or the Host that clients use: without, others count as this machine"
        if seen.status_code == 200 and not settings.metrics_token:
            yield "metrics", "everyone can read /metrics at the public address", True, fix


def _ask(method: str, url: str) -> "httpx2.Response | str":
    """The answer, or why there is none."""
    import httpx2

    try:
        with httpx2.Client(timeout=TIMEOUT_SECONDS) as client, client.stream(method, url) as answer:
            answer.read()
            return answer
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        return str(error) or type(error).__name__
