"""The doctor: finds present and future problems in a server's files, money and links and at its public address, and
says how to fix them."""

import os
import shutil
import sqlite3
import ssl
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from payres.accounts.mail import MailAttempt
from payres.accounts.settings import MailSettings
from payres.accounts.store import mail
from payres.agenda.store.agenda import MOST_FAULTS
from payres.core.process.settings import Settings, local_url, settings_file
from payres.core.protocol.amounts import Asset, describe_amount
from payres.core.protocol.clock import DAY, MINUTE, SECOND, SystemClock, format_time, lasts
from payres.core.protocol.urls import ROOT_WALLET_PATH, Urls, is_loopback
from payres.core.protocol.visible import visible_line
from payres.core.remote.ip_addresses import THREADS
from payres.core.remote.transport import no_connection
from payres.core.store import accounts
from payres.core.store.accounts import LOW_PART
from payres.core.store.connections import changed_at, free_bytes, is_followed, is_served, log_bytes
from payres.core.store.migrations import UnusableDatabase
from payres.core.store.server_secrets import existing_secret
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Work
from payres.interledger.clearing import ABOVE_LIMIT, SHORT_THERE
from payres.interledger.identity import OwnIdentity
from payres.interledger.settings import InterledgerSettings
from payres.interledger.store import packets, peers
from payres.interledger.store.peers import PeerRecord
from payres.operator.declared.shapes import MEBIBYTE, format_size
from payres.operator.limits import MIN_FREE_BYTES
from payres.operator.settings import OperatorSettings
from payres.operator.store import backups, due_work, invariants, status
from payres.operator.upkeep.backup_and_restore import BROKEN, made_in, time_of
from payres.operator.upkeep.missing_rates import SHOWN_RATES, lacking_rates, some
from payres.operator.upkeep.takeover import AFTER_TAKEOVER, describe_takeover
from payres.webhooks.store import webhooks

if TYPE_CHECKING:  # it loads slowly, and only checks over HTTP need it
    import httpx2

LOW_FREE_BYTES: Final = 10 * MIN_FREE_BYTES
LARGE_LOG_BYTES: Final = 256 * MEBIBYTE
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
BACKUP_DAYS: Final = 2

LATE: Final = 10 * MINUTE  # after so long, due work should have been done
CHECK_DAYS: Final = 1  # more than a server takes for tens of millions of payments
TIMEOUT_SECONDS: Final = 10
MAX_SEEN: Final = 1000  # characters: other servers have written some of them
CLOCK_SECONDS: Final = 5  # the most that a clock may be off; soon above that, signatures are rejected
# A certificate should have been renewed if it has less left than this, and than this part of its lifetime.
CERTIFICATE_SECONDS: Final = 14 * 86400
CERTIFICATE_PART: Final = 6
LAST_SECONDS: Final = 3 * 86400
ASKED_AT_ONCE: Final = 8
STANDBY_SECONDS: Final = 300  # after so long without a change, something is probably wrong

FIXED_SQLITE: Final = (3, 51, 3)  # https://sqlite.org/wal.html#walresetbug
WARNS: Final = "warns"  # the problem of a look may be harmless
# A page's words in the sentence of a `fix`, and the parts of its path.
Page = tuple[str, *tuple[str, ...]]
# The subject, its state, whether that is a problem, how to fix it, the page of the finding, and since when it is so.
Since = int | None
Look = (
    tuple[str, str, object, str] | tuple[str, str, object, str, Page] | tuple[str, str, object, str, Page | None, Since]
)
BACK_UP: Final = "Back up now", "backups"
MAIL_FIX: Final = "Try it with `payres mail test ADDRESS`; docs/how-to/mail.md has the settings"
MAIL_TEST: Final = "a test", "due"


class Diagnosis(msgspec.Struct, frozen=True):
    """A checked subject and its state; `fix` says what to do, None if nothing is wrong. A `warning` may be harmless.
    Then `seen` is a sentence that needs no subject, up to a colon and details: the heading of a page. There, `page`
    stands in place of the first command in `fix`. It is so `since` a time in microseconds UTC, None if that is not
    known."""

    subject: str
    seen: str
    fix: str | None = None
    warning: bool = False
    page: Page | None = None
    since: int | None = None

    @property
    def badness(self) -> int:
        return 0 if self.fix is None else 1 if self.warning else 2


class OtherFindings:
    """What others said when they were asked last, and when that was in microseconds UTC; nothing before the first
    time."""

    def __init__(self) -> None:
        self.found: Sequence[Diagnosis] = ()
        self.looked_at: int | None = None

    def note(self, found: Sequence[Diagnosis], now: int, stored: Mapping[str, int]) -> None:
        """Keeps what was found. What was wrong already is so since then, or since a time that was `stored`."""
        before = {**{one.subject: one.since for one in self.found}, **stored}
        times = [one.since or min(before.get(one.subject) or now, now) if one.fix else None for one in found]
        self.found = [msgspec.structs.replace(one, since=since) for one, since in zip(found, times, strict=True)]
        self.looked_at = now


class _Known(NamedTuple):
    """What the database says of its server: its URLs, a wallet, and the id of the key that it signs with."""

    settings: Settings
    urls: Urls
    wallet: str | None
    key: str | None


def examine(work: Work) -> Sequence[Diagnosis]:
    """The findings about the database and the settings; if another server has taken over, only that. Raises OSError."""
    taken = backups.takeover(work)
    if taken is not None:
        seen = f"another server has taken this one's place: {describe_takeover(taken)}"
        return _findings([("database", seen, True, AFTER_TAKEOVER)])
    looks = (_files, _backups, _ledger, _settings, _rates, _liquidity, _peers, _webhooks, _mail, _due)
    return _findings(found for look in looks for found in look(work))


def others(work: Work) -> Sequence[Callable[[], Iterable[Look]]]:
    """What `ask` asks: this machine, the running server or a standby's replication, the public address, the mail server
    and the servers of peers; after a takeover, only the machine."""
    wallet, settings = min((one.path for one in WALLETS.list(work) if one.active), default=None), work.settings
    known = _Known(settings, work.urls, wallet, _own_key(work))
    asked: list[Callable[[], Iterable[Look]]] = [_sqlite, _clock]
    if settings.read_only or is_followed(settings.database):
        asked += [partial(_followed, settings.database, work.now)]
    elif backups.takeover(work) is None:
        asked += [partial(_server, known), partial(_smtp, known)]
        asked += [partial(_reach, one) for one in peers.list_peers(work)]
    return asked


def ask(looks: Sequence[Callable[[], Iterable[Look]]]) -> Sequence[Diagnosis]:
    """The findings of `others`, a few of which are asked at the same time. Blocks, but no process that ends."""
    found: list[Sequence[Look]] = [()] * len(looks)
    left = iter(enumerate(looks))

    def ask_some() -> None:
        for n, look in left:
            found[n] = [*look()]

    for asked in [THREADS.submit(ask_some) for _ in range(ASKED_AT_ONCE)]:
        asked.result()
    return _findings(chain(*found))


def combined(found: Sequence[Diagnosis], others: Sequence[Diagnosis]) -> Sequence[Diagnosis]:
    """What the database and others say, once for each subject: what is worse, or else what others say."""
    by_subject: dict[str, Diagnosis] = {}
    for one in (*found, *others):
        before = by_subject.setdefault(one.subject, one)
        if one.badness >= before.badness:
            by_subject[one.subject] = msgspec.structs.replace(one, since=before.since or one.since)
    return [*by_subject.values()]


@cache
def trust() -> ssl.SSLContext:
    """The certificates that this machine trusted at the first call: reading them takes tens of milliseconds."""
    import httpx2

    return httpx2.create_ssl_context()


def _findings(looks: Iterable[Look]) -> Sequence[Diagnosis]:
    return [
        Diagnosis(subject, visible_line(seen, MAX_SEEN), *((fix, is_wrong is WARNS, *more) if is_wrong else ()))
        for subject, seen, is_wrong, fix, *more in looks
    ]


def _files(work: Work) -> Iterator[Look]:
    path = Path(work.settings.database).absolute()
    mode, free, log = stat.S_IMODE(os.stat(path).st_mode), free_bytes(path.parent), log_bytes(str(path))
    yield "permissions", f"{path} has mode {mode:04o}", mode & OTHERS, f"It holds secrets: chmod 600 {path}"
    config = settings_file()
    if config is not None and work.settings.of(OperatorSettings).metrics_token:
        mode = stat.S_IMODE(os.stat(config).st_mode)
        fix = f"It may hold metrics_token, a secret: chmod 600 {config}"
        yield "settings file", f"{config} has mode {mode:04o}", mode & OTHERS, fix
    fix = f"Free some space: below {format_size(MIN_FREE_BYTES)} no payments are accepted"
    yield "disk", f"{format_size(free)} are free in {path.parent}", free < LOW_FREE_BYTES, fix
    fix = "Some program keeps an old read transaction open, perhaps a backup tool or a SQLite shell: stop it"
    yield "write-ahead log", f"the write-ahead log has {format_size(log)}", log > LARGE_LOG_BYTES, fix


def _backups(work: Work) -> Iterator[Look]:
    settings = work.settings.of(OperatorSettings)
    directory, every = settings.backup_directory, settings.backup_every * SECOND
    made_at, earliest = backups.last_backup(work, work.now), work.now - BACKUP_DAYS * (every or DAY)
    if directory and not (os.path.isdir(directory) and os.access(directory, os.W_OK)):
        fix = "The server cannot make backups: create the directory, or set backup_directory to another one"
        yield "backup_directory", f"{directory} is not a directory that payres may write to", True, fix
    good, bad = (made_in(Path(directory), Path(work.settings.database), suffix) for suffix in ("", BROKEN))
    good_at = max([time_of(one, work.settings.database) or 0 for one in good[-1:]] + [made_at or 0])
    broken = [(at, one) for one in bad if (at := time_of(one, work.settings.database) or 0) >= good_at]
    if directory and broken:
        they = "It" if len(broken) == 1 else "They"
        fix = f"{they} cannot be restored, until the next good one (`payres backup`). The server's log names the fault"
        last = f". The last good one is of {format_time(good_at)}" if good_at else ""
        fix = f"{fix}; docs/operating.md says what to do about it{last}"
        few, newest = "1 backup is" if len(broken) == 1 else f"{len(broken)} backups are", broken[-1][1].name
        yield "broken backup", f"{few} broken: the newest copy is {newest}", True, fix, BACK_UP, broken[0][0]
    if made_at is None:
        fix = "Set backup_every, make one with `payres backup`, or let Litestream copy: docs/how-to/backup.md"
        is_needed = not is_loopback(work.urls.host) or _has_money_since(work, earliest)
        yield "backup", "no backup was made by payres", is_needed, fix, BACK_UP
    else:
        fix = "Make backups daily: docs/how-to/backup.md says how"
        if every:
            fix = f"backup_every says each {settings.backup_every} seconds: the server's log has why it made none"
        is_old = made_at < earliest
        seen = f"no backup was made since {format_time(made_at)}" if is_old else ""
        yield "backup", seen or f"the last one was made: {format_time(made_at)}", is_old, fix, BACK_UP


def _ledger(work: Work) -> Iterator[Look]:
    broken, checked_at, time = invariants.broken_invariant(work), invariants.last_check(work), CHECK_DAYS * DAY
    fix = "Check it with `payres ledger check`. A running server does so all the time; its log says why it does not"
    page = "the ledger check", "health", "ledger"
    if broken is not None:
        fix = "Accept no payments until it does: docs/operating.md"
        yield "ledger", f"the ledger does not add up: its invariant `{broken}` did not hold", True, fix
    elif checked_at is not None:
        is_old = not lasts(checked_at + time, work.now, time)
        seen = f"the ledger was not checked since {format_time(checked_at)}" if is_old else ""
        yield "ledger", seen or f"all its invariants held: {format_time(checked_at)}", is_old, fix, page
    else:
        yield "ledger", "the ledger has not been checked yet", _has_money_since(work, work.now - time), fix, page


def _has_money_since(work: Work, time: int) -> bool:
    """Whether any money was moved before this time."""
    first = status.first_transfer(work)
    return first is not None and first < time


def _liquidity(work: Work) -> Iterator[Look]:
    for code, scale, balance in status.low_liquidity(work):
        seen = f"little liquidity is left: {describe_amount(balance, Asset(code, scale))}"
        deposit = f"payres liquidity deposit AMOUNT --asset {code} --scale {scale}"
        fix = f"Deposit more with `{deposit}`, or exchanges into it will fail"
        yield f"liquidity {code}", seen, True, fix, ("the page of the currency", "assets", code, str(scale))


def _settings(work: Work) -> Iterator[Look]:
    here, served = work.settings.base_url, work.urls.base
    if here != served:
        fix = "If it has changed, start the server again. Otherwise give this command the settings of that server"
        yield "base URL", f"base_url is {here} here, and the server runs with {served}", True, fix
        return
    seen = f"base_url is {here}"
    if is_loopback(work.urls.host):
        yield "base URL", f"{seen}: only this machine reaches it", False, ""
        return
    fix = "Clients expect https: put a proxy with TLS in front and set base_url to its URL"
    yield "base URL", seen, work.settings.base_url.startswith("http:"), fix
    if work.settings.allow_private_hosts:
        fix = "Set it to false: anyone can make the server send requests inside your network"
        yield "allow_private_hosts", "the server may ask private hosts: base_url is public", True, fix


def _rates(work: Work) -> Iterator[Look]:
    lacking, rates_url = lacking_rates(work), work.settings.of(InterledgerSettings).rates_url
    has_service = rates_url and len(accounts.list_codes(work)) > 1
    if has_service and not any(one.expires_at and one.holds_at(work.now) for one in accounts.list_rates(work)):
        fix = "Ask it for `?base=` and a currency, as the server does, whose log says what is wrong with the answers"
        yield "rates service", "no rate of rates_url is valid now", WARNS, fix
    fix = "Payments between them are refused. Set one (`payres rate set`), or a service with rates_url, unless nobody"
    for base, counter in lacking.here[:SHOWN_RATES]:
        since, times = lacking.wanted.get((base, counter), (None, 0))
        why = f"wanted {'once' if times == 1 else f'{times} times'}" if times else "it has expired"
        seen, page = f"no rate from {base} to {counter}: {why}", ("here", "rates", base, counter)
        yield f"rate {base}/{counter}", seen, WARNS, f"{fix} is to exchange them", page, since
    if len(lacking.here) > SHOWN_RATES:
        seen = f"no valid rate for {some([*map('/'.join, lacking.here[SHOWN_RATES:])])}"
        yield "exchange rates", seen, WARNS, f"{fix} is to exchange them", ("the page of exchange rates", "rates")
    elif not lacking.here and len(accounts.list_codes(work)) > 1:
        yield "exchange rates", "all that somebody wanted lately between currencies here are valid", False, ""
    if lacking.elsewhere:
        pairs = some([*map("/".join, lacking.elsewhere)])
        yield "rates elsewhere", f"no valid rate for {pairs}: one of each two is in no wallet or peer here", False, ""


def _peers(work: Work) -> Iterator[Look]:
    for peer in peers.list_peers(work):
        subject, page = f"peer {peer.name}", ("the page of the peer", "peers", peer.name)
        settle = f"Let it pay and record that (`payres peer deposit {peer.name} AMOUNT`), or raise its credit limit"
        used, credit = peer.held - peer.balance, -peer.floor
        if credit and (credit - used) * LOW_PART <= credit:
            most = describe_amount(credit, peer.asset).removeprefix(f"{peer.asset_code} ")
            share = f"{100 * used // credit} % of its credit"
            seen = f"{subject} owes {share}: {describe_amount(used, peer.asset)} of {most}"
            yield subject, f"{seen}. At the limit, payments from there stop", WARNS, settle, page
        elif peer.last_error_at is not None and lasts(peer.last_error_at + DAY, work.now, DAY):
            fix = f"Compare the settings in `payres peer show {peer.name}` with its operator"
            pay = f"Pay it and record that (`payres peer withdraw {peer.name} AMOUNT`), or ask it for a higher limit"
            of_credit = {ABOVE_LIMIT: settle, SHORT_THERE: pay}.get(peer.last_error or "")
            seen = f"a payment with {peer.name} failed: {peer.last_error}"
            yield subject, seen, WARNS if of_credit else True, of_credit or fix, page, peer.last_error_at
    unresolved = packets.count_unresolved(work)
    if unresolved:
        fix = "List them with `payres peer unresolved NAME` and resolve each with its peer"
        seen = "1 packet is unresolved" if unresolved == 1 else f"{unresolved} packets are unresolved"
        yield "packets", seen, True, fix, ("the page What waits", "due")


def _webhooks(work: Work) -> Iterator[Look]:
    for webhook in webhooks.webhooks_of(work, None):
        name, page = webhook.name or webhook.url, ("webhooks", webhook.id)
        subject = f"webhook {name}"
        since = webhook.last_attempt_at
        if webhook.state == "paused":
            yield subject, "it is paused, and its events wait for 30 days", False, ""
        elif not webhook.active:
            fix = f"When it works again: `payres webhook test {webhook.id}`. Else: `payres webhook remove {webhook.id}`"
            seen = f"{subject} answered 410 Gone and is disabled"
            yield subject, seen, True, fix, ("its page sends a test", *page), since
        elif webhook.last_error is not None:
            fix = f"`payres webhook attempts {webhook.id}` has the answers, `payres webhook test {webhook.id}` tries it"
            seen = f"{subject} takes no events: {webhook.last_error}"
            since = webhooks.oldest_pending_event(work, webhook.id) or since
            yield subject, seen, True, fix, ("Its page", *page), since
    failed = webhooks.count_failed_deliveries(work)
    if failed:
        fix = "When the webhooks work again: `payres webhook replay --failed`"
        again = "the page of each sends them again", "webhooks"
        yield "events", f"{failed} event{'s' * (failed > 1)} could not be delivered", True, fix, again


def _mail(work: Work) -> Iterator[Look]:
    if not work.settings.of(MailSettings).smtp_host:
        yield "mail", "it is off, so owners get no notices (smtp_host)", False, ""
        return
    count, error, since = mail.waiting(work, work.now)
    seen = f"mail is not sent: {error}; {count} waiting" if error else f"{count} waiting"
    yield "mail", seen, error is not None, MAIL_FIX, MAIL_TEST, since


def _smtp(known: _Known) -> Iterator[Look]:
    """Whether the mail server takes mail of this server. None is sent."""
    settings = known.settings.of(MailSettings)
    host = settings.smtp_host
    if host:
        outcome = MailAttempt(settings, known.urls.host).greet()
        seen = f"{host} takes mail" if outcome.is_usable else f"mail is not sent: {outcome.said} ({host})"
        yield "mail", seen, not outcome.is_usable, MAIL_FIX, MAIL_TEST


def _due(work: Work) -> Iterator[Look]:
    counts = [due_work.count_due(work, name, work.now) for name in due_work.DUE_KINDS]
    aside, page = sum(one.set_aside for one in counts), ("the page What waits", "due")
    oldest = min((one.oldest for one in counts if one.oldest is not None), default=work.now)
    if aside:
        fix = "`payres due list` says why; `payres due retry ID` tries it again, `payres due give-up ID` ends it"
        seen = f"{aside} thing{' is' if aside == 1 else 's are'} set aside: after {MOST_FAULTS} faults of payres"
        yield "due work", seen, True, fix, page
    elif oldest < work.now - LATE:
        seen = f"something has been due for long: since {format_time(oldest)}"
        yield "due work", seen, WARNS, "`payres due list` shows what waits, and why", page, oldest


def _sqlite() -> Iterator[Look]:
    """Below FIXED_SQLITE, what else starts the write-ahead log over must be a program with a later one."""
    also = "" if sqlite3.sqlite_version_info >= FIXED_SQLITE else "; beside it, Litestream has to be 0.5.17 or later"
    yield "SQLite", f"version {sqlite3.sqlite_version}{also}", False, ""


def _clock() -> Iterator[Look]:
    """Whether the clock is synchronized, if systemd knows: not in a container, or where the host sets the clock."""
    command = shutil.which("timedatectl")
    if command is None:
        return
    asked = [command, "show", "--property=NTPSynchronized", "--value"]
    with suppress(subprocess.TimeoutExpired):
        said = subprocess.run(asked, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False).stdout  # noqa: S603 - a fixed command
        if said.strip() == "yes":
            yield "clock", "the clock of this machine is synchronized", False, ""
        elif said.strip() == "no":
            fix = "Signatures carry the time: unless its host sets it, run an NTP client (`timedatectl set-ntp true`)"
            yield "clock", "no NTP client sets the clock of this machine", WARNS, fix


def _followed(database: str, now: int) -> Iterator[Look]:
    """Whether Litestream still follows. It can stop silently; the primary commits at least every half a minute."""
    changed, earliest = changed_at(database), now - STANDBY_SECONDS * SECOND
    seen = "never" if changed is None else f"at {format_time(changed)}"
    fix = "Restart litestream-follow, and check that Litestream runs on the primary: docs/how-to/standby.md"
    yield (
        "standby",
        f"Litestream last brought a change {seen}",
        changed is None or changed < earliest,
        fix,
        None,
        changed,
    )


def _own_key(work: Work) -> str | None:
    """The id of the key that the server signs with, and shows at the root wallet address; None before its first
    start."""
    with suppress(UnusableDatabase):
        return OwnIdentity("", existing_secret(work, "client_key"), SystemClock()).kid
    return None


def _has_key(base: str, key: str | None) -> bool:
    """Whether the server there may be that of the database: not if it shows other keys than its own."""
    answer = _ask("GET", f"{Urls(base).wallet(ROOT_WALLET_PATH)}/jwks.json")
    return key is None or isinstance(answer, str) or answer.status_code != 200 or f'"{key}"' in answer.text


def _server(known: _Known) -> Iterator[Look]:
    """Whether the server runs here and can take payments, and what clients see of it."""
    settings, local = known.settings, local_url(known.settings.host, known.settings.port)
    if not is_served(settings.database):
        yield "server", f"no server runs on {settings.database}", True, "Start it: `payres serve`"
        return
    url = f"{local}/readyz"
    answer = _ask("GET", url)
    fix = "Give this command the settings of the server: host and port, or its payres.toml in this folder"
    if not _has_key(local, known.key):
        yield "server", f"it runs, but {local} is that of another database than {settings.database}", True, fix
    elif isinstance(answer, str):
        yield "server", f"it runs, but {url} does not answer: {answer}", True, fix
    elif answer.status_code == 200:
        yield "server", f"it runs and can take payments ({url})", False, ""
    else:
        yield "server", f"it cannot take payments: {answer.text}", True, "Read docs/operating.md on health"
    yield from _public(known)


def _public(known: _Known) -> Iterator[Look]:
    settings, urls, wallet, key = known
    answer = _ask("OPTIONS", urls.auth_server)
    if isinstance(answer, str):
        fix = "Clients reach the server there: check the name, the proxy and its certificate"
        yield "public address", f"{urls.auth_server} does not answer: {answer}", True, fix
        return
    # Clients sign the URL that they use, and the server checks that against base_url.
    fix = f"Let the proxy forward everything under {urls.base} unchanged, and set base_url to the URL that clients use"
    other = _other(answer, urls.auth_server)
    if not other and not _has_key(urls.base, key):
        other = "is a payres with another database than this one"
    yield "public address", f"{answer.url} {other or 'is this server'}", other, fix
    if wallet is not None:
        url = f"{urls.wallet(wallet)}/"
        found = _ask("GET", url)
        if not isinstance(found, str) and found.status_code != 200:
            fix = "The proxy must not redirect, strip or add slashes: clients sign the path as they send it"
            yield "paths", f"{url} is answered {found.status_code}", True, fix
    yield from _connections(settings, urls.auth_server)
    yield from _transport(known, answer)


def _other(answer: "httpx2.Response", auth_server: str) -> str:
    """How the answer differs from this server's; empty if it does not."""
    if answer.is_redirect:
        return f"redirects to {answer.headers.get('location')}"
    try:
        found = msgspec.json.decode(answer.content, type=dict[str, object]).get("grant_request_endpoint")
    except (ValueError, RecursionError):
        return f"is answered {answer.status_code}, and not by payres"
    return "" if found == auth_server else f"is a payres whose base_url is {found}"


def _connections(settings: Settings, url: str) -> Iterator[Look]:
    """Whether connections are kept open between requests, and how long the certificate is valid."""
    import httpx2

    used: list[object] = []
    certificate: Mapping[str, Any] | None = None
    with suppress(httpx2.HTTPError), httpx2.Client(timeout=TIMEOUT_SECONDS, verify=trust()) as client:
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
            " keepalive_timeout, Caddy's timeouts idle. Without that, each request waits for a new handshake"
        )
        yield "keep-alive", f"{url} closes the connection after each answer", True, fix
    else:
        yield "keep-alive", f"{url} answers two requests on one connection{_kept(settings)}", False, ""
    if certificate:
        start, end = (ssl.cert_time_to_seconds(certificate[name]) for name in ("notBefore", "notAfter"))
        left = end - time.time()
        is_late = left < min((end - start) // CERTIFICATE_PART, CERTIFICATE_SECONDS)
        problem = WARNS if is_late and left > LAST_SECONDS else is_late
        fix = "Renew the certificate; a proxy such as Caddy does so by itself"
        seen = f"the certificate ends {'on ' if left > LAST_SECONDS else ''}{format_time(end * SECOND)}"
        yield "TLS", f"{seen}: {left / 86400:.0f} of {(end - start) // 86400} days are left", problem, fix


def _kept(settings: Settings) -> str:
    """A clause about idle connections for a server behind a proxy: a request is lost if both close one at the same
    time."""
    url = local_url(settings.host, settings.port)
    answer = "" if settings.base_url == url else _ask("GET", f"{url}/healthz")
    if isinstance(answer, str) or "keep-alive" not in answer.headers:
        return ""
    seconds = answer.headers["keep-alive"].removeprefix("timeout=")
    return f"; the server closes idle ones after {seconds} seconds, so the proxy must close its own earlier"


def _reach(peer: PeerRecord) -> Iterator[Look]:
    """Whether a server answers at the URL of a peer, if only with a 4xx. No packet is sent."""
    answer = _ask("OPTIONS", peer.url)
    fix, note = "Payments to and from it wait or fail", f". Your note: “{peer.note}”" if peer.note else ""
    fix = f"{fix}. Ask its operator; if the URL has changed, `payres peer change {peer.name} --url URL`{note}"
    page = "change its terms", "peers", peer.name
    if isinstance(answer, str):
        yield f"peer {peer.name}", f"{peer.url} does not answer: {answer}", True, fix, page
    else:
        seen = f"{peer.url} answers" if answer.status_code < 500 else f"{peer.url} is answered {answer.status_code}"
        yield f"peer {peer.name}", seen, answer.status_code >= 500, fix, page


def _transport(known: _Known, answer: "httpx2.Response") -> Iterator[Look]:
    """Whether the proxy's clock is right, and whether it forwards the addresses of clients."""
    with suppress(KeyError, ValueError, OverflowError):  # the Date is missing or invalid
        off = abs(parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time())
        fix = "Correct the clocks of this machine and its proxy: signatures carry the time"
        if off > CLOCK_SECONDS:
            yield "clock", f"the proxy's clock is {off:.0f} seconds off", True, fix
    if not is_loopback(answer.url.host) and not isinstance(seen := _ask("GET", f"{known.urls.base}/metrics"), str):
        fix = "The proxy must send X-Forwarded-For, or the client's Host; otherwise all clients look like this machine"
        if seen.status_code == 200 and not known.settings.of(OperatorSettings).metrics_token:
            yield "metrics", "everyone can read /metrics at the public address", True, fix


def _ask(method: str, url: str) -> "httpx2.Response | str":
    """The answer, or why there is none."""
    import httpx2

    try:
        with httpx2.Client(timeout=TIMEOUT_SECONDS, verify=trust()) as client, client.stream(method, url) as answer:
            answer.read()
            return answer
    except httpx2.TimeoutException:
        return f"it has not answered within {TIMEOUT_SECONDS:g} seconds"
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError):
            cause = cause.__cause__ or cause.__context__
        return str(error) if cause is None else str(no_connection(urlsplit(url).netloc, cause))
