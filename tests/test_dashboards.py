"""Dashboards ask only for metrics that exist, with labels that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raydiff.metrics import CATALOGUE, Metric

DASHBOARDS = sorted((Path(__file__).parents[1] / "dashboards").glob("*.json"))
RAY_LABELS = {"WorkerId", "le"}
"""Labels that Ray's exporter adds to every series, and a histogram's own."""
_SELECTOR = re.compile(r"(ray_\w+)(?:\{([^}]*)\})?")


def _series(metric: Metric) -> list[str]:
    if metric.kind != "histogram":
        return [metric.ray_name]
    return [f"{metric.ray_name}_{part}" for part in ("bucket", "sum", "count")]


KNOWN = {name: metric for metric in CATALOGUE for name in _series(metric)}


def _queries(path: Path) -> Iterator[str]:
    dashboard: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_query_names_metrics_and_labels_of_the_catalogue(path: Path) -> None:
    queries = list(_queries(path))
    assert queries
    for query in queries:
        selectors = _SELECTOR.findall(query)
        assert selectors, query
        for name, labels in selectors:
            assert name in KNOWN, f"{name} in {query}"
            used = set(re.findall(r"(\w+)\s*=", labels))
            grouped = {
                g for gs in re.findall(r"by \(([^)]*)\)", query) for g in re.split(r", *", gs)
            }
            assert used | grouped <= set(KNOWN[name].labels) | RAY_LABELS, query


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_do_not_overlap(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
