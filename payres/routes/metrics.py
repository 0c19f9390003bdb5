"""Metrics for Prometheus: what was counted since the start, and what the database shows now. docs/monitoring.md."""

import asyncio
import hmac
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from payres import __version__
from payres.clock import SECOND
from payres.errors import NotFound
from payres.event_types import EVENT_TYPES
from payres.http.admin_hosts import AdminHosts
from payres.metrics import Histogram, Metrics
from payres.operator.status import Status, read_status
from payres.routes.context import Context, context_of

# The library is imported where it is used: it loads slowly, and many servers are never asked.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


async def read(request: Request) -> Response:
    """GET /metrics: for whom `admin_hosts` lets in, or who has `metrics_token`. Raises NotFound for everyone else."""
    context = context_of(request)
    if not _may_read(request, context.settings.metrics_token):
        raise NotFound("There is nothing at this address")
    status = await context.database.examine(read_status)
    return Response(await asyncio.to_thread(_render, context, status), media_type=CONTENT_TYPE)


def _may_read(request: Request, token: str) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if token and scheme.lower() == "bearer":
        return hmac.compare_digest(given.encode(), token.encode())
    admin_hosts: AdminHosts = request.scope["app"].state["admin_hosts"]
    return not token and admin_hosts.let_in(request.scope)


def _render(context: Context, status: Status) -> bytes:
    """Runs on a thread of its own: loading the library takes a tenth of a second."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.registry import Collector

    class Server(Collector):
        def collect(self) -> Iterator[Any]:
            yield from _counted(context)
            yield from _stored(context, status)

    registry = CollectorRegistry()
    registry.register(Server())
    return generate_latest(registry)


def _counted(context: Context) -> Iterator[Any]:
    """What happened since the start."""
    from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily

    metrics = context.metrics
    yield from _requests(metrics)
    outcomes = {(outcome,): metrics.events[f"outgoing_payment.{outcome}"] for outcome in ("completed", "failed")}
    yield _counter("payres_outgoing_payments", "Outgoing payments that ended.", ("outcome",), outcomes)
    happened = {(kind,): metrics.events[kind] for kind in EVENT_TYPES}
    yield _counter("payres_events", "Events, by type.", ("type",), happened)
    sent = {(result,): metrics.deliveries[result] for result in ("taken", "failed")}
    yield _counter("payres_webhook_deliveries", "Attempts to send an event.", ("result",), sent)
    packet_labels = ("peer", "direction", "result")
    yield _counter("payres_ilp_packets", "Packets of peers and to peers.", packet_labels, metrics.packets)
    yield GaugeMetricFamily("payres_writer_queue_length", "Units that wait for the writer.", context.database.waiting)
    for name, meaning, histogram in (
        ("payres_writer_transaction_seconds", "How long transactions of the writer took.", metrics.transaction_seconds),
        ("payres_writer_batch_size", "Units that shared a commit.", metrics.batch_sizes),
    ):
        family = HistogramMetricFamily(name, meaning)
        family.add_metric((), *_buckets(histogram))
        yield family


def _requests(metrics: Metrics) -> Iterator[Any]:
    from prometheus_client.core import HistogramMetricFamily

    labels = ("route", "method", "status")
    seconds = HistogramMetricFamily(
        "payres_http_request_duration_seconds", "How long their answers took.", labels=labels
    )
    answered = {
        (route, method, str(status)): found for (route, method, status), found in list(metrics.requests.items())
    }
    for values, histogram in answered.items():
        seconds.add_metric(values, *_buckets(histogram))
    counts = {values: sum(histogram.counts) for values, histogram in answered.items()}
    yield _counter("payres_http_requests", "Requests answered, by endpoint.", labels, counts)
    yield seconds
    errors = {(code,): count for code, count in list(metrics.errors.items())}
    yield _counter("payres_refusals", "Error responses, by code.", ("code",), errors)


def _counter(name: str, meaning: str, labels: Sequence[str], counts: Mapping[Any, int]) -> Any:
    """A counter with a sample for each of the counts, which the event loop goes on counting meanwhile."""
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, meaning, labels=labels)
    for values, count in list(counts.items()):
        family.add_metric(values, count)
    return family


def _stored(context: Context, status: Status) -> Iterator[Any]:
    from prometheus_client.core import GaugeMetricFamily

    ledger = GaugeMetricFamily(
        "payres_ledger_minor_units", "Balances, in the asset's minor unit.", labels=("asset", "scale", "kind")
    )
    for row in status.sums:
        ledger.add_metric((row.code, str(row.scale), row.kind), row.balance)
    yield ledger
    now = context.clock.now()
    if status.last_backup_at is not None:
        age = (now - status.last_backup_at) / SECOND
        yield GaugeMetricFamily("payres_backup_age_seconds", "Since the last backup by payres.", age)
    if status.last_check_at is not None:
        yield GaugeMetricFamily(
            "payres_ledger_check_timestamp_seconds",
            "When all invariants of the ledger were last found to hold.",
            status.last_check_at / SECOND,
        )
    pending = 0 if status.oldest_pending_at is None else max(now - status.oldest_pending_at, 0) / SECOND
    yield GaugeMetricFamily(
        "payres_webhook_oldest_pending_seconds",
        "Since the oldest event that a webhook did not take and is sent again.",
        pending,
    )
    sizes: Mapping[str, int] = {"database": status.database_bytes, "wal": status.log_bytes}
    files = GaugeMetricFamily("payres_database_bytes", "Sizes of the database's files.", labels=("file",))
    for file, size in sizes.items():
        files.add_metric((file,), size)
    yield files
    yield GaugeMetricFamily("payres_disk_free_bytes", "What the disk of the database has free.", status.free_bytes)
    sending = GaugeMetricFamily("payres_payments_open", "Payments that have not ended.", labels=("direction",))
    sending.add_metric(("outgoing",), status.sending)
    yield sending
    yield GaugeMetricFamily(
        "payres_ilp_packets_unresolved", "Packets whose outcome an operator has to resolve.", status.unresolved_packets
    )
    yield GaugeMetricFamily(
        "payres_writing_stopped",
        "1 when writing has stopped and an operator must look.",
        bool(context.database.stopped),
    )
    build = GaugeMetricFamily("payres_build_info", "The version.", labels=("version",))
    build.add_metric((__version__,), 1)
    yield build


def _buckets(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """The cumulative counts up to each bound, and the sum, as Prometheus has them."""
    total, buckets = 0, list[tuple[str, float]]()
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets, histogram.sum
