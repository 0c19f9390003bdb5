"""Monitoring: liveness, readiness, and metrics for Prometheus. See docs/operating.md."""

import asyncio
import hmac
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from payres import __version__
from payres.core.http.context import Context, context_of
from payres.core.http.request_head import credentials
from payres.core.http.responses import json_response
from payres.core.process.logs import Histogram
from payres.core.protocol.clock import SECOND, format_time_if_any
from payres.core.protocol.errors import DomainError, nothing_here
from payres.core.protocol.event_types import EVENT_TYPES
from payres.core.store.connections import changed_at, free_bytes, log_bytes
from payres.core.store.database import answers
from payres.core.store.work import Work
from payres.interledger.node import node_of
from payres.interledger.store import packets
from payres.operator.services import operator_of
from payres.operator.settings import OperatorSettings
from payres.operator.store import backups, due_work, invariants, status
from payres.webhooks.sender import Sender
from payres.webhooks.store import webhooks

# The Prometheus library is imported on first use, because it loads slowly.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# A metric: kind, name, meaning, the sample or samples by label values, and label names. The sample of a histogram is a
# tuple.
Family = tuple[Any, ...]


async def healthz(request: Request) -> Response:
    """GET /healthz: 200 if the database can be read, else 503 with the reason."""
    try:
        await context_of(request).database.read(answers)
    except DomainError as error:
        return _unavailable(str(error))
    return json_response({"status": "ok"})


async def readyz(request: Request) -> Response:
    """GET /readyz: 200 if payments can be accepted, else 503 with the reason; both with details."""
    context = context_of(request)
    problem = await operator_of(context).readiness.problem()
    shown: dict[str, object] = {"walBytes": log_bytes(context.database.path)}
    with suppress(DomainError):
        shown["restoredAt"] = format_time_if_any(await context.database.read(backups.last_restore))
    if context.settings.read_only:
        shown |= {"readOnly": True, "changedAt": format_time_if_any(changed_at(context.database.path))}
    backup = operator_of(context).long_works.latest.get("backup")
    if backup is not None and backup.problem:
        shown["backup"] = "failed"  # why, is not for everybody: `payres doctor` and the log say it
    details = {"details": shown}
    return _unavailable(problem, **details) if problem else json_response({"status": "ok"} | details)


async def read_metrics(request: Request) -> Response:
    """GET /metrics, for hosts in `admin_hosts` and holders of `metrics_token`. Raises NotFound for others."""
    context = context_of(request)
    if not _may_read(request, context):
        raise nothing_here()
    stored = await context.database.examine(lambda work: [*_stored(work)])
    return Response(await asyncio.to_thread(_render, context, stored), media_type=CONTENT_TYPE)


def _unavailable(reason: str, **details: object) -> Response:
    return json_response({"status": "unavailable", "reason": reason, **details}, 503)


def _may_read(request: Request, context: Context) -> bool:
    token = context.settings.of(OperatorSettings).metrics_token
    if token:
        given = credentials(request.scope["headers"], "bearer") or ""
        return hmac.compare_digest(given.encode(), token.encode())
    return operator_of(context).hosts.let_in(request.scope)


def _render(context: Context, stored: Sequence[Family]) -> bytes:
    """Runs in a thread: importing the library takes a tenth of a second."""
    from prometheus_client import core, generate_latest

    kinds: Mapping[str, Any] = {
        "counter": core.CounterMetricFamily,
        "gauge": core.GaugeMetricFamily,
        "histogram": core.HistogramMetricFamily,
    }

    class Server:
        def collect(self) -> Iterator[core.Metric]:
            for kind, name, meaning, samples, *labels in _families(context, stored):
                family = kinds[kind](name, meaning, labels=labels)
                # The event loop may change the counters meanwhile.
                for values, sample in list(samples.items()) if isinstance(samples, Mapping) else [((), samples)]:
                    family.add_metric(values, *(sample if isinstance(sample, tuple) else (sample,)))
                yield family

    return generate_latest(Server())


def _families(context: Context, stored: Sequence[Family]) -> Iterator[Family]:
    """Counters since the start, figures from the database, and the state of the server."""
    metrics = context.metrics
    labels = ("route", "method", "status")
    answered = {(route, method, str(code)): found for (route, method, code), found in list(metrics.requests.items())}
    counts = {values: sum(histogram.counts) for values, histogram in answered.items()}
    yield "counter", "payres_http_requests", "Requests answered, by endpoint.", counts, *labels
    seconds = {values: _buckets(histogram) for values, histogram in answered.items()}
    yield "histogram", "payres_http_request_duration_seconds", "How long their answers took.", seconds, *labels
    errors = {(code,): count for code, count in list(metrics.errors.items())}
    yield "counter", "payres_refusals", "Error responses, by code.", errors, "code"
    outcomes = {(outcome,): metrics.events[f"outgoing_payment.{outcome}"] for outcome in ("completed", "failed")}
    yield "counter", "payres_outgoing_payments", "Outgoing payments that ended.", outcomes, "outcome"
    happened = {(kind,): metrics.events[kind] for kind in EVENT_TYPES}
    yield "counter", "payres_events", "Events, by type.", happened, "type"
    sent = {(result,): context.part(Sender).attempts[result] for result in ("taken", "failed")}
    yield "counter", "payres_webhook_deliveries", "Attempts to send an event.", sent, "result"
    labels = ("peer", "direction", "result")
    yield "counter", "payres_ilp_packets", "Packets of peers and to peers.", node_of(context).packets, *labels
    yield "gauge", "payres_writer_queue_length", "Units that wait for the writer.", context.database.waiting
    took, shared = _buckets(metrics.transaction_seconds), _buckets(metrics.batch_sizes)
    yield "histogram", "payres_writer_transaction_seconds", "How long transactions of the writer took.", {(): took}
    yield "histogram", "payres_writer_batch_size", "Units that shared a commit.", {(): shared}
    yield from stored
    meaning = "1 when writing has stopped and an operator must look."
    yield "gauge", "payres_writing_stopped", meaning, bool(context.database.stopped)
    yield "gauge", "payres_build_info", "The version.", {(__version__,): 1}, "version"


def _stored(work: Work) -> Iterator[Family]:
    """Figures from the database. Reads each account. Raises OSError."""
    path = work.settings.database
    sums = {(one.asset_code, str(one.asset_scale), one.kind): one.balance for one in status.ledger_sums(work)}
    meaning = "Balances, in the asset's minor unit."
    yield "gauge", "payres_ledger_minor_units", meaning, sums, "asset", "scale", "kind"
    made_at, checked_at = backups.last_backup(work, work.now), invariants.last_check(work)
    if made_at is not None:
        age = max(work.now - made_at, 0) / SECOND
        yield "gauge", "payres_backup_age_seconds", "Since the last backup by payres.", age
    if checked_at is not None:
        meaning = "When all invariants of the ledger were last found to hold."
        yield "gauge", "payres_ledger_check_timestamp_seconds", meaning, checked_at / SECOND
    pending_at = webhooks.oldest_pending_event(work)
    late = 0 if pending_at is None else max(work.now - pending_at, 0) / SECOND
    meaning = "Since the oldest event that a webhook did not take and is sent again."
    yield "gauge", "payres_webhook_oldest_pending_seconds", meaning, late
    sizes = {("database",): os.stat(path).st_size, ("wal",): log_bytes(path)}
    yield "gauge", "payres_database_bytes", "Sizes of the database's files.", sizes, "file"
    free = free_bytes(Path(path).absolute().parent)
    yield "gauge", "payres_disk_free_bytes", "What the disk of the database has free.", free
    sending = {("outgoing",): status.count_sending(work)}
    yield "gauge", "payres_payments_open", "Payments that have not ended.", sending, "direction"
    found = {name: due_work.count_due(work, name, work.now) for name in due_work.DUE_KINDS}
    labels = {(name,): one for name, one in found.items()}
    yield "gauge", "payres_due", "Work that is due.", {key: one.due for key, one in labels.items()}, "kind"
    ages = {key: 0 if one.oldest is None else max(work.now - one.oldest, 0) / SECOND for key, one in labels.items()}
    yield "gauge", "payres_due_oldest_seconds", "Since the oldest of that is due.", ages, "kind"
    aside = {key: one.set_aside for key, one in labels.items()}
    yield "gauge", "payres_set_aside", "Work that is tried no more until an operator says so.", aside, "kind"
    meaning, unresolved = "Packets whose outcome an operator has to resolve.", packets.count_unresolved(work)
    yield "gauge", "payres_ilp_packets_unresolved", meaning, unresolved


def _buckets(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """The cumulative counts by upper bound, and the sum, in Prometheus's form."""
    bounds = (*map(str, histogram.bounds), "+Inf")
    return list(zip(bounds, accumulate(histogram.counts), strict=True)), histogram.sum
