"""The catalogue: every metric raydiff exports, and the protocols that carry values to it.

This room knows neither Ray nor prometheus_client. A process that has one of them supplies a
`Backend`; `MetricsRecorder` turns the engine's frozen records into catalogue updates.
Names are in base units. Ray's exporter adds the prefix `ray_` and, to counters, the suffix
`_total` (`Metric.ray_name`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from raydiff.request import PrefixStats, RequestStats, StepStats

Kind = Literal["counter", "gauge", "histogram"]

SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    120.0,
)
ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
TOKENS_PER_FORWARD = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0)


@dataclass(frozen=True)
class Metric:
    """One entry of the catalogue."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ("model",)
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, fixed for all processes."""

    @property
    def ray_name(self) -> str:
        """The name a scrape of Ray's exporter shows (histograms add _bucket, _sum, _count)."""
        return f"ray_{self.name}_total" if self.kind == "counter" else f"ray_{self.name}"


DOCUMENTS = Metric(
    "raydiff_documents",
    "counter",
    "Documents of corpus jobs that were committed, by outcome (summarized, failed).",
    ("model", "outcome"),
)
OUTPUT_TOKENS = Metric(
    "raydiff_output_tokens",
    "counter",
    "Generated tokens of finished requests; nothing after the end token.",
)
PROMPT_TOKENS = Metric("raydiff_prompt_tokens", "counter", "Prompt tokens of finished requests.")
FORWARDS = Metric(
    "raydiff_forwards",
    "counter",
    "Model forwards, by kind (encode: prompts and finished blocks; denoise: open blocks).",
    ("model", "kind"),
)
FORWARD_ROWS = Metric(
    "raydiff_forward_rows",
    "counter",
    "Rows, summed over forwards, by kind: over forwards, the mean batch; output tokens over its "
    "denoise part, the tokens per forward. Exact, unlike sums of Ray's histograms, which put "
    "each observation in the middle of its bucket.",
    ("model", "kind"),
)
FORWARD_SECONDS = Metric(
    "raydiff_forward_seconds", "histogram", "Seconds of one forward.", ("model", "kind"), SECONDS
)
ENGINE_BUSY_SECONDS = Metric(
    "raydiff_engine_busy_seconds",
    "counter",
    "Seconds that the engine spent in forwards, by kind; its rate, summed over kinds, is the share "
    "of time that a replica is busy. Exact, unlike the sums of raydiff_forward_seconds.",
    ("model", "kind"),
)
FORWARD_POSITIONS = Metric(
    "raydiff_forward_positions",
    "counter",
    "Positions of forwards, by kind and by what they are (computed, padding: rows are padded to "
    "the longest; context, context_padding: the same of cached positions that are read).",
    ("model", "kind", "part"),
)
BATCH_ROWS = Metric(
    "raydiff_batch_rows", "histogram", "Rows in one forward.", ("model", "kind"), ROWS
)
COMMITTED_POSITIONS = Metric(
    "raydiff_committed_positions", "counter", "Positions committed, end tokens included."
)
TOKENS_PER_FORWARD_ROW = Metric(
    "raydiff_tokens_per_forward",
    "histogram",
    "Output tokens of a finished request over its denoising forwards.",
    ("model",),
    TOKENS_PER_FORWARD,
)
QUEUE_DEPTH = Metric(
    "raydiff_queue_depth", "gauge", "Requests waiting for admission.", ("model", "lane")
)
ACTIVE_ROWS = Metric("raydiff_active_rows", "gauge", "Requests admitted and not finished.")
LANE_ROWS = Metric(
    "raydiff_lane_rows",
    "counter",
    "Rows, summed over forwards, by the lane of their requests.",
    ("model", "lane"),
)
LANE_BUSY_SECONDS = Metric(
    "raydiff_lane_busy_seconds",
    "counter",
    "Seconds of forwards by the lane whose forwards they were; rows of the batch lane ride along "
    "in forwards of the interactive one.",
    ("model", "lane"),
)
BATCH_FORWARDS_WAITED = Metric(
    "raydiff_batch_forwards_waited",
    "histogram",
    "Forwards of the batch lane that interactive requests waited for before their first one: the "
    "most of any request that began with the same forward.",
    ("model",),
    (0.5, 1.5, 2.5, 4.5, 8.5, 16.5),
)
BACKLOG_ROW_FORWARDS = Metric(
    "raydiff_backlog_row_forwards",
    "gauge",
    "Forwards that the requests in hand still need, each row counted by itself, by estimate.",
    ("model", "lane"),
)
ROW_FORWARDS_PER_SECOND = Metric(
    "raydiff_row_forwards_per_second",
    "gauge",
    "Rows times forwards per second of work, at as many rows as the backlog fills.",
)
QUEUE_SECONDS = Metric(
    "raydiff_queue_seconds",
    "histogram",
    "Seconds from submission to a request's first forward.",
    ("model", "lane"),
    SECONDS,
)
REQUEST_SECONDS = Metric(
    "raydiff_request_seconds",
    "histogram",
    "Seconds from submission to the end of a request, by outcome.",
    ("model", "lane", "outcome"),
    SECONDS,
)
FIRST_COMMIT_SECONDS = Metric(
    "raydiff_time_to_first_committed_text_seconds",
    "histogram",
    "Seconds from submission to the first committed text.",
    ("model", "lane"),
    SECONDS,
)
PREFIX_LOOKUPS = Metric(
    "raydiff_prefix_lookups",
    "counter",
    "Prompts looked up in the cache of prompts' beginnings, by outcome (hit: at least a part of "
    "one was there; miss).",
    ("model", "outcome"),
)
PREFIX_REUSED_TOKENS = Metric(
    "raydiff_prefix_reused_tokens",
    "counter",
    "Prompt tokens taken from the cache of prompts' beginnings instead of encoded.",
)
PREFIX_EVICTIONS = Metric(
    "raydiff_prefix_evictions",
    "counter",
    "Pieces of prompts dropped from the cache of prompts' beginnings for room.",
)
PREFIX_BYTES = Metric(
    "raydiff_prefix_bytes",
    "gauge",
    "Bytes of keys and values in the cache of prompts' beginnings.",
)
SHARDS = Metric("raydiff_shards_committed", "counter", "Shards of corpus jobs committed.")

CATALOGUE: tuple[Metric, ...] = (
    DOCUMENTS,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    FORWARDS,
    FORWARD_ROWS,
    FORWARD_SECONDS,
    ENGINE_BUSY_SECONDS,
    FORWARD_POSITIONS,
    BATCH_ROWS,
    COMMITTED_POSITIONS,
    TOKENS_PER_FORWARD_ROW,
    QUEUE_DEPTH,
    ACTIVE_ROWS,
    LANE_ROWS,
    LANE_BUSY_SECONDS,
    BATCH_FORWARDS_WAITED,
    BACKLOG_ROW_FORWARDS,
    ROW_FORWARDS_PER_SECOND,
    QUEUE_SECONDS,
    REQUEST_SECONDS,
    FIRST_COMMIT_SECONDS,
    PREFIX_LOOKUPS,
    PREFIX_REUSED_TOKENS,
    PREFIX_EVICTIONS,
    PREFIX_BYTES,
    SHARDS,
)


class Backend(Protocol):
    """Where values go: Ray's metrics, prometheus_client, or a test's dictionary."""

    def add(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """Increase a counter by `value` > 0."""

    def observe(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """Add one observation to a histogram."""

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """Set a gauge."""


class Recorder(Protocol):
    """What the engine reports to."""

    def on_step(self, stats: StepStats) -> None:
        """One forward is done."""

    def on_request(self, stats: RequestStats) -> None:
        """One request ended."""


class NullRecorder:
    """Drops everything."""

    def on_step(self, stats: StepStats) -> None:
        return None

    def on_request(self, stats: RequestStats) -> None:
        return None


class MetricsRecorder:
    """Maps the engine's records to the catalogue, labelled with the model's name."""

    def __init__(self, backend: Backend, model: str) -> None:
        self._backend = backend
        self._model = {"model": model}

    def on_step(self, stats: StepStats) -> None:
        labels = {**self._model, "kind": stats.kind}
        self._backend.add(FORWARDS, 1, labels)
        self._add(FORWARD_ROWS, stats.rows, labels)
        self._backend.observe(FORWARD_SECONDS, stats.forward_s, labels)
        self._backend.observe(BATCH_ROWS, stats.rows, labels)
        self._add(ENGINE_BUSY_SECONDS, stats.forward_s, labels)
        for part, count in (
            ("computed", stats.positions),
            ("padding", stats.padded_positions),
            ("context", stats.context_positions),
            ("context_padding", stats.padded_context_positions),
        ):
            self._add(FORWARD_POSITIONS, count, {**labels, "part": part})
        self._add(COMMITTED_POSITIONS, stats.committed_tokens, self._model)
        for lane, depth in stats.queue_depth.items():
            self._backend.set(QUEUE_DEPTH, depth, {**self._model, "lane": lane})
        self._backend.set(ACTIVE_ROWS, stats.active_rows, self._model)
        if stats.prefix is not None:
            self._on_prefix(stats.prefix)
        self._on_lanes(stats)

    def _on_lanes(self, stats: StepStats) -> None:
        self._add(LANE_BUSY_SECONDS, stats.forward_s, {**self._model, "lane": stats.lane})
        for lane, rows in stats.lane_rows.items():
            self._add(LANE_ROWS, rows, {**self._model, "lane": lane})
        if stats.batch_forwards_waited is not None:
            self._backend.observe(BATCH_FORWARDS_WAITED, stats.batch_forwards_waited, self._model)
        if stats.backlog is not None:
            for lane, left in stats.backlog.row_forwards.items():
                self._backend.set(BACKLOG_ROW_FORWARDS, left, {**self._model, "lane": lane})
            rate = stats.backlog.row_forwards_per_s
            self._backend.set(ROW_FORWARDS_PER_SECOND, rate, self._model)

    def _on_prefix(self, stats: PrefixStats) -> None:
        for outcome, count in (("hit", stats.hits), ("miss", stats.lookups - stats.hits)):
            self._add(PREFIX_LOOKUPS, count, {**self._model, "outcome": outcome})
        self._add(PREFIX_REUSED_TOKENS, stats.reused_tokens, self._model)
        self._add(PREFIX_EVICTIONS, stats.evictions, self._model)
        self._backend.set(PREFIX_BYTES, stats.held_bytes, self._model)

    def on_request(self, stats: RequestStats) -> None:
        lane = {**self._model, "lane": stats.lane}
        usage = stats.usage
        self._backend.observe(REQUEST_SECONDS, stats.total_s, {**lane, "outcome": stats.outcome})
        self._backend.observe(QUEUE_SECONDS, stats.queue_s, lane)
        if stats.first_commit_s is not None:
            self._backend.observe(FIRST_COMMIT_SECONDS, stats.first_commit_s, lane)
        self._add(OUTPUT_TOKENS, usage.completion_tokens, self._model)
        self._add(PROMPT_TOKENS, usage.prompt_tokens, self._model)
        if usage.forwards:
            self._backend.observe(TOKENS_PER_FORWARD_ROW, usage.tokens_per_forward, self._model)

    def _add(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        if value > 0:
            self._backend.add(metric, value, labels)


class MetricClasses(Protocol):
    """A module with Ray's three metric classes: `ray.util.metrics` or `ray.serve.metrics`."""

    Counter: Any
    Gauge: Any
    Histogram: Any


class RayBackend:
    """A Backend over Ray's metric classes, which the caller passes in.

    Build it inside the replica's or worker's process: metric objects made at import time lose
    the tags that Serve adds.
    """

    def __init__(self, classes: MetricClasses) -> None:
        self._classes = classes
        self._made: dict[str, Any] = {}

    def add(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        self._get(metric).inc(value, tags=dict(labels))

    def observe(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        self._get(metric).observe(value, tags=dict(labels))

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        self._get(metric).set(value, tags=dict(labels))

    def _get(self, metric: Metric) -> Any:
        made = self._made.get(metric.name)
        if made is None:
            made = self._made[metric.name] = self._make(metric)
        return made

    def _make(self, metric: Metric) -> Any:
        common = {"description": metric.help, "tag_keys": metric.labels}
        if metric.kind == "counter":
            return self._classes.Counter(metric.name, **common)
        if metric.kind == "gauge":
            return self._classes.Gauge(metric.name, **common)
        return self._classes.Histogram(metric.name, boundaries=list(metric.buckets), **common)
