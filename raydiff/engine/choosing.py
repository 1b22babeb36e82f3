"""From canvases that choose among given texts to what the next forward must know. Knows no torch.

Shapes: S rows that choose, C continuations, P open positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raydiff.engine.canvas import Canvas
from raydiff.engine.plan import ChoiceRows


def choice_rows(canvases: Sequence[Canvas]) -> ChoiceRows | None:
    """What the rows that choose may become; `None` if no row chooses."""
    rows = [i for i, canvas in enumerate(canvases) if canvas.choices is not None]
    if not rows:
        return None
    chosen = [canvases[i] for i in rows]
    ways = [canvas.continuations() for canvas in chosen]
    count, width = (max(way.tokens.shape[axis] for way in ways) for axis in (0, 1))
    temperature = np.array([c.request.decoding.temperature or 0.0 for c in chosen], np.float32)
    return ChoiceRows(
        rows=np.array(rows, dtype=np.int64),
        tokens=np.stack([_padded(way.tokens, count, width) for way in ways]),
        groups=np.stack([_padded(way.groups, count, width) for way in ways]),
        real=np.stack([np.arange(count) < way.tokens.shape[0] for way in ways]),
        places=np.stack([np.arange(width) < way.tokens.shape[1] for way in ways]),
        decides=np.array([_decides(canvas) for canvas in chosen]),
        temperature=temperature,
        uniform=np.array(
            [
                canvas.rng.random(dtype=np.float32) if hot else 0.0
                for canvas, hot in zip(chosen, temperature > 0, strict=True)
            ],
            dtype=np.float32,
        ),
    )


def _decides(canvas: Canvas) -> bool:
    """Whether this is the last of the frame's steps."""
    steps = canvas.request.decoding.steps
    return steps is not None and canvas.step + 1 >= steps


def _padded(values: np.ndarray, count: int, width: int) -> np.ndarray:
    rows, columns = values.shape
    return np.pad(values, ((0, count - rows), (0, width - columns)))
