"""The catalogue and the recorder."""

from __future__ import annotations

from collections.abc import Mapping

from raydiff import metrics
from raydiff.metrics import CATALOGUE, Metric, MetricsRecorder
from raydiff.request import PrefixStats, RequestStats, StepStats, Usage


class DictBackend:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.values: list[tuple[str, Metric, float, dict[str, str]]] = []

    def add(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        self.values.append(("counter", metric, value, dict(labels)))

    def observe(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        self.values.append(("histogram", metric, value, dict(labels)))

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        self.values.append(("gauge", metric, value, dict(labels)))


def record() -> DictBackend:
    backend = DictBackend()
    recorder = MetricsRecorder(backend, "m")
    recorder.on_step(
        StepStats(
            kind="denoise",
            rows=3,
            positions=96,
            padded_positions=32,
            context_positions=500,
            padded_context_positions=140,
            forward_s=0.02,
            committed_tokens=6,
            queue_depth={"interactive": 1, "batch": 2},
            active_rows=3,
            prefix=PrefixStats(lookups=5, hits=2, reused_tokens=64, evictions=1, held_bytes=4096),
        )
    )
    usage = Usage(prompt_tokens=40, completion_tokens=8, forwards=4)
    recorder.on_request(
        RequestStats(
            outcome="stop", lane="batch", usage=usage, queue_s=0.1, first_commit_s=0.2, total_s=0.3
        )
    )
    return backend


def test_each_update_has_its_metrics_kind_and_exactly_its_labels() -> None:
    for kind, metric, _, labels in record().values:
        assert kind == metric.kind
        assert set(labels) == set(metric.labels)


def test_counts_are_what_was_recorded() -> None:
    values = {(m.name, labels.get("lane")): v for _, m, v, labels in record().values}
    assert values["raydiff_output_tokens", None] == 8
    assert values["raydiff_prompt_tokens", None] == 40
    assert values["raydiff_tokens_per_forward", None] == 2.0
    assert values["raydiff_batch_rows", None] == 3
    assert values["raydiff_queue_depth", "batch"] == 2
    assert values["raydiff_request_seconds", "batch"] == 0.3


def test_busy_seconds_and_padding_are_exact_counters() -> None:
    values = {(m.name, labels.get("part")): (kind, v) for kind, m, v, labels in record().values}
    assert values["raydiff_engine_busy_seconds", None] == ("counter", 0.02)
    parts = {"computed": 96, "padding": 32, "context": 500, "context_padding": 140}
    for part, count in parts.items():
        assert values["raydiff_forward_positions", part] == ("counter", count)


def test_reuse_of_prompts_is_counted_by_outcome() -> None:
    values = {(m.name, labels.get("outcome")): v for _, m, v, labels in record().values}
    assert values["raydiff_prefix_lookups", "hit"] == 2
    assert values["raydiff_prefix_lookups", "miss"] == 3
    assert values["raydiff_prefix_reused_tokens", None] == 64
    assert values["raydiff_prefix_evictions", None] == 1
    assert values["raydiff_prefix_bytes", None] == 4096


def test_a_counter_is_never_increased_by_zero() -> None:
    """Ray's counters refuse it."""
    backend = DictBackend()
    usage = Usage(prompt_tokens=0, completion_tokens=0, forwards=0)
    MetricsRecorder(backend, "m").on_request(
        RequestStats(
            outcome="cancelled",
            lane="batch",
            usage=usage,
            queue_s=0,
            first_commit_s=None,
            total_s=0,
        )
    )
    assert all(value > 0 for kind, _, value, _ in backend.values if kind == "counter")


def test_the_catalogue_is_complete_and_in_base_units() -> None:
    defined = {m for m in vars(metrics).values() if isinstance(m, Metric)}
    assert defined == set(CATALOGUE)
    for metric in CATALOGUE:
        assert metric.name.startswith("raydiff_")
        assert metric.help.endswith(".")
        assert not metric.name.endswith(("_total", "_ms"))
        assert (metric.kind == "histogram") == bool(metric.buckets)
        assert all(bound > 0 for bound in metric.buckets), "Ray refuses other bounds"
        assert "id" not in metric.labels
    assert metrics.FORWARDS.ray_name == "ray_raydiff_forwards_total"
