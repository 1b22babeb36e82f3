"""The report for people: figures, errors, the plot; a bar in a message breaks no table."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from raydiff.corpus.chart import nice_top
from raydiff.corpus.markdown import MARKDOWN_NAME, PLOT_NAME, markdown, write_markdown
from raydiff.corpus.plot import throughput_svg
from raydiff.corpus.timeline import Timeline
from raydiff.storage import LocalFolder

FOUND = Timeline(interval_s=60.0, documents=(600, 1200, 0), output_tokens=(6000, 12000, 0))


def report(**changes: Any) -> dict[str, Any]:
    return {
        "status": "done",
        "input": "s3://bucket/in",
        "output": "s3://bucket/out",
        "model": "summarizer",
        "started_at": "2026-01-01T00:00:00+00:00",
        "settings": {"task": {"kind": "summarize"}},
        "fingerprint": {"decoding": {"steps": 16, "seed": None, "stop": []}},
        "versions": {"raydiff": "1"},
        "rows": 1800,
        "summarized": 1798,
        "failed": 2,
        "error_types": {"NullDocument": 2},
        "throughput": FOUND.to_dict(),
        **changes,
    }


def test_it_holds_the_figures_and_the_plot() -> None:
    text = markdown(report())
    assert "# raydiff summarize: done" in text
    assert "| documents | 1,800 |" in text
    assert "| `NullDocument` | 2 |" in text
    assert "| `steps` | `16` |" in text
    assert f"]({PLOT_NAME})" in text


def test_a_stopped_run_says_why_in_one_cell() -> None:
    text = markdown(report(status="stopped", reason="ClusterError: a|b\nc", throughput=None))
    assert "| why it ended | ClusterError: a\\|b c |" in text
    assert PLOT_NAME not in text


def test_both_files_are_written(tmp_path: Path) -> None:
    write_markdown(LocalFolder(tmp_path), report())
    assert {p.name for p in tmp_path.iterdir()} == {MARKDOWN_NAME, PLOT_NAME}


def test_the_plot_draws_each_interval_at_its_height() -> None:
    root = ElementTree.fromstring(throughput_svg("a < b", FOUND))
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    heights = [[float(p.split(",")[1]) for p in (n.get("points") or "").split()] for n in lines]
    base = max(heights[0])
    for line in heights:
        above = [base - y for y in line]
        assert above[0] == above[1] == pytest.approx(above[2] / 2)
        assert above[4] == above[5] == 0


@pytest.mark.parametrize(
    ("value", "top"),
    [(0.0, 1.0), (0.03, 0.04), (1.0, 1.0), (7.0, 8.0), (181.0, 200.0), (999.0, 1000.0)],
)
def test_an_axis_ends_at_a_round_number(value: float, top: float) -> None:
    assert nice_top(value) == pytest.approx(top)
