"""The plot of replicas over time, one line for each policy, as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raydiff.corpus import chart
from raydiff.corpus.chart import LEFT, RIGHT, TICKS, TOP, WIDTH, nice_top, text, y_of

COLOURS = {"backlog": "#1f77b4", "requests": "#d9730d"}
LOAD = "#999"


def replicas_svg(report: Mapping[str, Any]) -> str:
    """Replicas that run or start (left axis), and clients (right axis)."""
    policies = report["policies"]
    phases = [(phase["clients"], phase["seconds"]) for phase in report["phases"]]
    seconds = max(s for policy in policies for s in policy["series"]["seconds"])
    top = nice_top(max(policy["most_replicas"] for policy in policies))
    clients = nice_top(max(count for count, _ in phases))
    lines = [chart.line(_load(phases, seconds, clients), LOAD, 1)]
    names = []
    for i, policy in enumerate(policies):
        colour = COLOURS[policy["policy"]]
        lines.append(chart.line(_steps(policy["series"], seconds, top), colour))
        names.append(text(LEFT + 90 * i, TOP - 6, policy["policy"], "start", colour))
    names.append(text(WIDTH - RIGHT, TOP - 6, "clients", "end", LOAD))
    axis = chart.time_axis(seconds, "{unit}")
    title = f"Replicas by policy, {report['model']}"
    return chart.document(title, [*_grid(top, clients), *axis, *lines, *names])


def _steps(series: Mapping[str, Any], seconds: float, top: float) -> list[chart.Point]:
    """A count holds until the next one is read."""
    points: list[chart.Point] = []
    for at_s, running, starting in zip(
        series["seconds"], series["running"], series["starting"], strict=True
    ):
        x, y = at_s / seconds, (running + starting) / top
        points += [(x, points[-1][1] if points else y), (x, y)]
    return points


def _load(phases: list[tuple[int, float]], seconds: float, top: float) -> list[chart.Point]:
    points: list[chart.Point] = []
    begin_s = 0.0
    for clients, lasting_s in phases:
        end_s = min(seconds, begin_s + lasting_s)
        points += [(begin_s / seconds, clients / top), (end_s / seconds, clients / top)]
        begin_s = end_s
    return points


def _grid(top: float, clients: float) -> list[str]:
    lines = []
    for tick in range(TICKS + 1):
        share = tick / TICKS
        y = y_of(share) + 4
        lines += [
            chart.rule(share),
            text(LEFT - 6, y, f"{share * top:,.4g}", "end", chart.GREY),
            text(WIDTH - RIGHT + 6, y, f"{share * clients:,.4g}", "start", LOAD),
        ]
    return lines
