"""Monitoring: whether the server lives, whether it can take payments, and metrics for Prometheus. docs/operating.md."""

import asyncio
import hmac
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from payres import __version__
from payres.clock import format_time_if_any
from payres.counters import Histogram
from payres.errors import DomainError, nothing_here
from payres.event_types import EVENT_TYPES
from payres.http.request_head import credentials
from payres.http.responses import json_response
from payres.limits import MIN_FREE_BYTES
from payres.operator.status import Gauge, read_gauges
from payres.routes.context import Context, context_of
from payres.store.connections import changed_at, free_bytes, log_bytes
from payres.store.database import Database, answers
from payres.store.status import last_restore
from payres.store.transactions import touch

# The library is imported where it is used: it loads slowly, and many servers are never asked.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
COMMIT_SECONDS: Final = 2.0  # for a commit
CACHE_SECONDS: Final = 1.0  # so that asking often does not make work


async def healthz(request: Request) -> Response:
    """GET /healthz: 200 when the process lives and the database can be read, 503 with the reason when it cannot."""
    try:
        await context_of(request).database.read(answers)
    except DomainError as error:
        return _unavailable(str(error))
    return json_response({"status": "ok"})


async def readyz(request: Request) -> Response:
    """GET /readyz: 200 when payments can be taken, 503 with the reason when they cannot; details in any case."""
    context = context_of(request)
    problem = await context.readiness.problem()
    shown: dict[str, Any] = {"walBytes": log_bytes(context.database.path)}
    with suppress(DomainError):
        shown["restoredAt"] = format_time_if_any(await context.database.read(last_restore))
    if context.settings.read_only:
        shown |= {"readOnly": True, "changedAt": format_time_if_any(changed_at(context.database.path))}
    details = {"details": shown}
    return _unavailable(problem, **details) if problem else json_response({"status": "ok"} | details)


async def read_metrics(request: Request) -> Response:
    """GET /metrics: for whom `admin_hosts` lets in, or who has `metrics_token`. Raises NotFound for everyone else."""
    context = context_of(request)
    if not _may_read(request, context):
        raise nothing_here()
    found = await context.database.examine(read_gauges)
    return Response(await asyncio.to_thread(_render, context, found), media_type=CONTENT_TYPE)


class Readiness:
    """Whether payments can be taken now. Finds out by a real commit, at most once a second."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._problem: str | None = None

    async def problem(self) -> str | None:
        """Why no payments can be taken, or None when they can."""
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if now >= self._asked_at + CACHE_SECONDS:
                self._problem = self._no_room() or await self._no_commit()
                self._asked_at = now
        return self._database.stopped or self._problem

    def _no_room(self) -> str | None:
        try:
            is_enough = free_bytes(Path(self._database.path).parent) >= MIN_FREE_BYTES
        except OSError:  # the folder has gone, of which the commit says more
            return None
        return None if is_enough else f"The disk of the database has less than {MIN_FREE_BYTES // 1024**2} MiB free"

    async def _no_commit(self) -> str | None:
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                await self._database.write(touch)
        except DomainError as error:
            return str(error)
        except TimeoutError:
            return f"The database did not take a commit within {COMMIT_SECONDS:g} seconds"
        return None


def _unavailable(reason: str, **details: Any) -> Response:
    return json_response({"status": "unavailable", "reason": reason, **details}, 503)


def _may_read(request: Request, context: Context) -> bool:
    token = context.settings.metrics_token
    if token:
        given = credentials(request.scope["headers"], "bearer") or ""
        return hmac.compare_digest(given.encode(), token.encode())
    return context.admin_hosts.let_in(request.scope)


def _render(context: Context, found: Sequence[tuple[Gauge, Any]]) -> bytes:
    """Runs on a thread of its own: loading the library takes a tenth of a second."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.registry import Collector

    class Server(Collector):
        def collect(self) -> Iterator[Any]:
            yield from _counted(context)
            yield from _stored(context, found)

    registry = CollectorRegistry()
    registry.register(Server())
    return generate_latest(registry)


def _family(kind: Any, name: str, meaning: str, samples: Mapping[Any, Any] | float, labels: Sequence[str] = ()) -> Any:
    """A metric with its samples by the values of its labels, or the only one; a histogram has tuples.

    The event loop goes on counting meanwhile.
    """
    family = kind(name, meaning, labels=labels)
    for values, sample in list(samples.items()) if isinstance(samples, Mapping) else [((), samples)]:
        family.add_metric(values, *(sample if isinstance(sample, tuple) else (sample,)))
    return family


def _counted(context: Context) -> Iterator[Any]:
    """What happened since the start."""
    from prometheus_client.core import CounterMetricFamily as Counter
    from prometheus_client.core import GaugeMetricFamily as Gauge
    from prometheus_client.core import HistogramMetricFamily as Histograms

    metrics = context.metrics
    labels = ("route", "method", "status")
    answered = {(route, method, str(code)): found for (route, method, code), found in list(metrics.requests.items())}
    counts = {values: sum(histogram.counts) for values, histogram in answered.items()}
    yield _family(Counter, "payres_http_requests", "Requests answered, by endpoint.", counts, labels)
    seconds = {values: _buckets(histogram) for values, histogram in answered.items()}
    yield _family(Histograms, "payres_http_request_duration_seconds", "How long their answers took.", seconds, labels)
    errors = {(code,): count for code, count in list(metrics.errors.items())}
    yield _family(Counter, "payres_refusals", "Error responses, by code.", errors, ("code",))
    outcomes = {(outcome,): metrics.events[f"outgoing_payment.{outcome}"] for outcome in ("completed", "failed")}
    yield _family(Counter, "payres_outgoing_payments", "Outgoing payments that ended.", outcomes, ("outcome",))
    happened = {(kind,): metrics.events[kind] for kind in EVENT_TYPES}
    yield _family(Counter, "payres_events", "Events, by type.", happened, ("type",))
    sent = {(result,): metrics.deliveries[result] for result in ("taken", "failed")}
    yield _family(Counter, "payres_webhook_deliveries", "Attempts to send an event.", sent, ("result",))
    labels = ("peer", "direction", "result")
    yield _family(Counter, "payres_ilp_packets", "Packets of peers and to peers.", metrics.packets, labels)
    waiting = context.database.waiting
    yield _family(Gauge, "payres_writer_queue_length", "Units that wait for the writer.", waiting)
    for name, meaning, histogram in (
        ("payres_writer_transaction_seconds", "How long transactions of the writer took.", metrics.transaction_seconds),
        ("payres_writer_batch_size", "Units that shared a commit.", metrics.batch_sizes),
    ):
        yield _family(Histograms, name, meaning, {(): _buckets(histogram)})


def _stored(context: Context, found: Sequence[tuple[Gauge, Any]]) -> Iterator[Any]:
    """What the database shows now."""
    from prometheus_client.core import GaugeMetricFamily

    gauge = partial(_family, GaugeMetricFamily)
    for one, samples in found:
        yield gauge(one.name, one.meaning, samples, one.labels)
    meaning = "1 when writing has stopped and an operator must look."
    yield gauge("payres_writing_stopped", meaning, bool(context.database.stopped))
    yield gauge("payres_build_info", "The version.", {(__version__,): 1}, ("version",))


def _buckets(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """The cumulative counts up to each bound, and the sum, as Prometheus has them."""
    bounds = (*map(str, histogram.bounds), "+Inf")
    return list(zip(bounds, accumulate(histogram.counts), strict=True)), histogram.sum
