"""The plot of a run's throughput, as SVG: jobs have no plotting library at hand."""

from __future__ import annotations

import math
from html import escape

from raydiff.corpus.timeline import Timeline

_WIDTH, _HEIGHT = 720, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 64, 34, 40
_TOKENS, _DOCUMENTS = "#1f77b4", "#d9730d"
_TICKS = 4
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def throughput_svg(title: str, found: Timeline) -> str:
    """Output tokens/s (left axis) and documents/s (right axis) over the run's hours."""
    tokens, documents = found.tokens_per_s, found.documents_per_s
    token_top, document_top = nice_top(max(tokens)), nice_top(max(documents))
    seconds = found.interval_s * len(tokens)
    body = [
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_WIDTH / 2, 18, escape(title), "middle", "black"),
        *_grid(token_top, document_top),
        *_hours(seconds),
        _line(documents, document_top, _DOCUMENTS),
        _line(tokens, token_top, _TOKENS),
        _text(_LEFT, _TOP - 6, "output tokens/s", "start", _TOKENS),
        _text(_WIDTH - _RIGHT, _TOP - 6, "documents/s", "end", _DOCUMENTS),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, *body, "</svg>\n"])


def nice_top(value: float) -> float:
    """The end of an axis: the least of 1, 2, 4, 5, 8 or 10 times a power of ten not below."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return unit * next(step for step in (1, 2, 4, 5, 8, 10) if value <= step * unit * (1 + 1e-9))


def _line(values: list[float], top: float, colour: str) -> str:
    """A step for each interval: its value is a mean over it, not a moment's."""
    width = (_WIDTH - _LEFT - _RIGHT) / len(values)
    points = [
        f"{_LEFT + (i + edge) * width:.1f},{_y(value / top):.1f}"
        for i, value in enumerate(values)
        for edge in (0, 1)
    ]
    return f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _grid(token_top: float, document_top: float) -> list[str]:
    lines = []
    for tick in range(_TICKS + 1):
        share = tick / _TICKS
        y = _y(share)
        lines += [
            f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#ddd"/>',
            _text(_LEFT - 6, y + 4, f"{share * token_top:,.4g}", "end", _TOKENS),
            _text(_WIDTH - _RIGHT + 6, y + 4, f"{share * document_top:,.4g}", "start", _DOCUMENTS),
        ]
    return lines


def _hours(seconds: float) -> list[str]:
    size, unit = next((u for u in _UNITS if seconds >= 2 * u[0]), _UNITS[-1])
    marks = []
    for tick in range(_TICKS + 1):
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * tick / _TICKS
        figure = f"{seconds * tick / _TICKS / size:.3g}"
        marks.append(_text(x, _HEIGHT - _BOTTOM + 18, figure, "middle", "#555"))
    label = f"{unit} of running time, pauses left out"
    return [*marks, _text(_WIDTH / 2, _HEIGHT - 6, label, "middle", "#555")]


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def _text(x: float, y: float, text: str, anchor: str, colour: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'
