"""The doctor: finds problems, present and coming, in a server's files, money and links, and says how to fix them."""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from payres.amounts import Asset, format_decimal
from payres.clock import DAY, format_time
from payres.limits import MIN_FREE_BYTES
from payres.operator.backups import AFTER_TAKEOVER, describe
from payres.operator.shapes import MEBIBYTE, format_size
from payres.store import assets, events, peers, status
from payres.store.accounts import LOW_PART
from payres.store.connections import free_bytes, log_bytes
from payres.store.peers import PeerRecord
from payres.store.work import Work
from payres.urls import is_loopback

LOW_FREE_BYTES: Final = 10 * MIN_FREE_BYTES
LARGE_LOG_BYTES: Final = 256 * MEBIBYTE
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
BACKUP_DAYS: Final = 2
CHECK_DAYS: Final = 1  # more than a server takes for tens of millions of payments


class Finding(msgspec.Struct, frozen=True):
    """A thing that was checked and what was seen; `fix` says what to do, None when nothing is wrong."""

    subject: str
    seen: str
    fix: str | None = None


def examine(work: Work) -> Sequence[Finding]:
    """The findings about the database and the settings; of one that was replaced, only that it was. Raises OSError."""
    taken = status.takeover(work)
    if taken is not None:
        return [Finding("database", f"another server has taken this one's place: {describe(taken)}", AFTER_TAKEOVER)]
    looks = (_files, _backups, _ledger, _settings, _rates, _liquidity, _peers, _webhooks)
    return [finding for look in looks for finding in look(work)]


def _files(work: Work) -> Iterator[Finding]:
    path = Path(work.settings.database).absolute()
    mode = stat.S_IMODE(os.stat(path).st_mode)
    seen = f"{path} has mode {mode:04o}"
    yield Finding("permissions", seen, f"It holds secrets: chmod 600 {path}" if mode & OTHERS else None)
    free = free_bytes(path.parent)
    seen = f"{format_size(free)} are free in {path.parent}"
    low = f"Make room: below {format_size(MIN_FREE_BYTES)} no payments are taken"
    yield Finding("disk", seen, low if free < LOW_FREE_BYTES else None)
    log = log_bytes(str(path))
    large = "Something has kept one state of the database open for long: end it, a backup tool or a shell of SQLite"
    seen = f"the write-ahead log has {format_size(log)}"
    yield Finding("write-ahead log", seen, large if log > LARGE_LOG_BYTES else None)


def _backups(work: Work) -> Iterator[Finding]:
    directory = work.settings.backup_directory
    if directory and not (os.path.isdir(directory) and os.access(directory, os.W_OK)):
        fix = "The operator's API can make no backups: make it, or name another one in backup_directory"
        yield Finding("backup_directory", f"{directory} is not a directory that payres may write to", fix)
    made_at = status.last_backup(work)
    if made_at is None:
        fix = "Make one with `payres backup`, or let Litestream copy the database: docs/backup.md"
        is_needless = is_loopback(work.urls.host) and not _has_money_since(work, work.now - BACKUP_DAYS * DAY)
        yield Finding("backup", "payres has made none", None if is_needless else fix)
    else:
        fix = "Make backups daily: docs/backup.md says how"
        is_old = made_at < work.now - BACKUP_DAYS * DAY
        yield Finding("backup", f"the last one was made at {format_time(made_at)}", fix if is_old else None)


def _ledger(work: Work) -> Iterator[Finding]:
    checked_at, earliest = status.last_check(work), work.now - CHECK_DAYS * DAY
    fix = (
        "Check it with `payres ledger check`. A running server does so all the time: when it does not, its log says why"
    )
    broken = status.broken_invariant(work)
    if broken is not None:
        yield Finding(
            "ledger", f"its invariant `{broken}` did not hold", "Take no payments until it does: docs/operating.md"
        )
    elif checked_at is not None:
        seen = f"all its invariants held at {format_time(checked_at)}"
        yield Finding("ledger", seen, fix if checked_at < earliest else None)
    else:
        yield Finding("ledger", "it was not checked yet", fix if _has_money_since(work, earliest) else None)


def _has_money_since(work: Work, time: int) -> bool:
    """Whether money was moved then, or earlier."""
    first = status.first_transfer(work)
    return first is not None and first < time


def _liquidity(work: Work) -> Iterator[Finding]:
    for code, scale, balance in status.low_liquidity(work):
        seen = f"{format_decimal(balance, Asset(code, scale))} is left, little of what there was"
        fix = f"Put more in with `payres liquidity deposit {code} {scale} AMOUNT`, or payments into it fail"
        yield Finding(f"liquidity {code}", seen, fix)


def _settings(work: Work) -> Iterator[Finding]:
    settings = work.settings
    seen = f"base_url is {settings.base_url}"
    if is_loopback(work.urls.host):
        yield Finding("base URL", f"{seen}: only this machine reaches it")
        return
    plain = "Clients expect https: put a proxy with TLS in front and set base_url to its URL"
    yield Finding("base URL", seen, plain if settings.base_url.startswith("http:") else None)
    if settings.allow_private_hosts:
        fix = "Set it to false: anyone can make the server send requests inside your network"
        yield Finding("allow_private_hosts", "it is on, and base_url is public", fix)


def _rates(work: Work) -> Iterator[Finding]:
    codes = assets.list_codes(work)
    good = {
        pair
        for rate in assets.list_rates(work)
        if rate.holds_at(work.now)
        for pair in ((rate.base, rate.counter), (rate.counter, rate.base))
    }
    pairs = [(base, counter) for base in codes for counter in codes if base < counter]
    lacking = [f"{base}/{counter}" for base, counter in pairs if (base, counter) not in good]
    if len(codes) > 1:
        seen = f"no valid rate for {', '.join(lacking)}" if lacking else "there is a valid rate between all currencies"
        fix = "Set one with `payres rate set`, or a service with rates_url, unless nobody is to pay across them"
        yield Finding("exchange rates", seen, fix if lacking else None)


def _webhooks(work: Work) -> Iterator[Finding]:
    for webhook in events.list_webhooks(work):
        if not webhook.active:
            fix = f"Once it is there again: `payres webhook test {webhook.id}`, or `payres webhook remove {webhook.id}`"
            yield Finding(f"webhook {webhook.url}", "it answered 410 Gone and is disabled", fix)
        elif webhook.last_error is not None:
            fix = f"`payres webhook deliveries` lists what it did not take, `payres webhook test {webhook.id}` tries it"
            yield Finding(f"webhook {webhook.url}", f"the last attempt failed: {webhook.last_error}", fix)
    failed = status.count_failed_deliveries(work)
    if failed:
        fix = "When the webhooks are well again: `payres webhook replay --failed`"
        yield Finding("events", f"{failed} were not delivered and are not sent again", fix)


def _peers(work: Work) -> Iterator[Finding]:
    for peer in peers.list_peers(work):
        yield _peer(work, peer)
    unresolved = status.count_unresolved_packets(work)
    if unresolved:
        seen = f"{unresolved} unresolved"
        yield Finding("packets", seen, "List them with `payres peer unresolved NAME` and resolve each with its peer")


def _peer(work: Work, peer: PeerRecord) -> Finding:
    subject = f"peer {peer.name}"
    credit = format_decimal(-peer.floor, peer.asset)
    if peer.balance - peer.held - peer.floor < -peer.floor // LOW_PART:
        seen = f"it owes {format_decimal(-peer.balance, peer.asset)} of {credit} {peer.asset_code} credit"
        return Finding(
            subject,
            seen,
            "Have it pay, and record that with `payres peer deposit`: beyond its credit, packets are rejected",
        )
    if peer.last_error_at is not None and peer.last_error_at > work.now - DAY:
        seen = f"at {format_time(peer.last_error_at)}: {peer.last_error}"
        return Finding(subject, seen, f"`payres peer show {peer.name}` shows what is set: compare it with its operator")
    return Finding(subject, "nothing has gone wrong with it in the last 24 hours")
