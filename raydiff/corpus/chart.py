"""Pieces of charts over time, as SVG: jobs have no plotting library at hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 720, 280
LEFT, RIGHT, TOP, BOTTOM = 64, 64, 34, 40
TICKS = 4
UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
GREY = "#555"

Point = tuple[float, float]


def document(title: str, body: Sequence[str]) -> str:
    """A whole chart."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">'
    )
    white = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    name = text(WIDTH / 2, 18, escape(title), "middle", "black")
    return "\n".join([head, white, name, *body, "</svg>\n"])


def nice_top(value: float) -> float:
    """The end of an axis: the least of 1, 2, 4, 5, 8 or 10 times a power of ten not below."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return unit * next(step for step in (1, 2, 4, 5, 8, 10) if value <= step * unit * (1 + 1e-9))


def line(points: Sequence[Point], colour: str, width: float = 2) -> str:
    """A line through shares of the chart's width and height."""
    places = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>'


def rule(share: float) -> str:
    """A horizontal rule at a share of the height."""
    y = y_of(share)
    return f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>'


def time_axis(seconds: float, label: str) -> list[str]:
    """Marks of time below the chart; `{unit}` in the label becomes theirs."""
    size, unit = next((u for u in UNITS if seconds >= 2 * u[0]), UNITS[-1])
    marks = [
        text(
            x_of(tick / TICKS),
            HEIGHT - BOTTOM + 18,
            f"{seconds * tick / TICKS / size:.3g}",
            "middle",
            GREY,
        )
        for tick in range(TICKS + 1)
    ]
    return [*marks, text(WIDTH / 2, HEIGHT - 6, label.format(unit=unit), "middle", GREY)]


def text(x: float, y: float, words: str, anchor: str, colour: str) -> str:
    """Words at a place of the document; they must be escaped."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def x_of(share: float) -> float:
    """Place of a share of the width."""
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def y_of(share: float) -> float:
    """Place of a share of the height, from below."""
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
