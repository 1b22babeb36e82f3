"""The plot of a run's throughput, as SVG."""

from __future__ import annotations

from raydiff.corpus import chart
from raydiff.corpus.chart import LEFT, RIGHT, TICKS, TOP, WIDTH, nice_top, text, y_of
from raydiff.corpus.timeline import Timeline

_TOKENS, _DOCUMENTS = "#1f77b4", "#d9730d"


def throughput_svg(title: str, found: Timeline) -> str:
    """Output tokens/s (left axis) and documents/s (right axis) over the run's hours."""
    tokens, documents = found.tokens_per_s, found.documents_per_s
    token_top, document_top = nice_top(max(tokens)), nice_top(max(documents))
    seconds = found.interval_s * len(tokens)
    body = [
        *_grid(token_top, document_top),
        *chart.time_axis(seconds, "{unit} of running time, pauses left out"),
        _line(documents, document_top, _DOCUMENTS),
        _line(tokens, token_top, _TOKENS),
        text(LEFT, TOP - 6, "output tokens/s", "start", _TOKENS),
        text(WIDTH - RIGHT, TOP - 6, "documents/s", "end", _DOCUMENTS),
    ]
    return chart.document(title, body)


def _line(values: list[float], top: float, colour: str) -> str:
    """A step for each interval: its value is a mean over it, not a moment's."""
    points = [
        ((i + edge) / len(values), value / top) for i, value in enumerate(values) for edge in (0, 1)
    ]
    return chart.line(points, colour)


def _grid(token_top: float, document_top: float) -> list[str]:
    lines = []
    for tick in range(TICKS + 1):
        share = tick / TICKS
        y = y_of(share)
        lines += [
            chart.rule(share),
            text(LEFT - 6, y + 4, f"{share * token_top:,.4g}", "end", _TOKENS),
            text(WIDTH - RIGHT + 6, y + 4, f"{share * document_top:,.4g}", "start", _DOCUMENTS),
        ]
    return lines
