"""From canvases to plans: stacks their state into arrays. Knows no torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raydiff.engine.canvas import Canvas, State
from raydiff.engine.plan import DenoisePlan, EncodePlan, Sampling, Shape


def encode_plan(canvases: Sequence[Canvas], shape: Shape) -> EncodePlan:
    """Plan the encoding of prompts or of finished blocks (never both in one plan)."""
    if canvases[0].state is State.ENCODE_BLOCK:
        offsets = [len(c.done) - c.block_length for c in canvases]
        tokens = [tuple(c.done[o:]) for c, o in zip(canvases, offsets, strict=True)]
        starts = [c.positions_from(o) for c, o in zip(canvases, offsets, strict=True)]
        cached = [c.prompt_length + o for c, o in zip(canvases, offsets, strict=True)]
    else:
        tokens = [c.request.prompt_ids for c in canvases]
        starts = [0] * len(canvases)
        cached = [0] * len(canvases)
    return EncodePlan(
        shape=shape,
        request_ids=tuple(c.request_id for c in canvases),
        tokens=tuple(tokens),
        starts=np.array(starts, dtype=np.int64),
        cached=np.array(cached, dtype=np.int64),
    )


def denoise_plan(canvases: Sequence[Canvas], shape: Shape) -> DenoisePlan:
    """Plan one denoising forward over canvases of one shape."""
    recompute = shape.context == 0
    live = np.stack([c.live() for c in canvases])
    width = int(np.flatnonzero(live.any(axis=0))[-1]) + 1
    return DenoisePlan(
        shape=shape,
        request_ids=tuple(c.request_id for c in canvases),
        tokens=np.stack([c.tokens[:width] for c in canvases]),
        open=np.stack([c.open[:width] for c in canvases]),
        live=live[:, :width],
        starts=np.array([c.positions_from(len(c.done)) for c in canvases], dtype=np.int64),
        cached=np.array([c.context_length for c in canvases], dtype=np.int64),
        at_least=np.array([c.at_least for c in canvases], dtype=np.int64),
        threshold=np.array([c.threshold for c in canvases], dtype=np.float32),
        end_forbidden=np.stack([c.end_forbidden()[:width] for c in canvases]),
        sampling=_sampling(canvases, width),
        contexts=tuple((*c.request.prompt_ids, *c.done) for c in canvases) if recompute else (),
        prompt_lengths=tuple(c.prompt_length for c in canvases) if recompute else (),
    )


def _sampling(canvases: Sequence[Canvas], width: int) -> Sampling | None:
    rows = [i for i, c in enumerate(canvases) if c.request.decoding.temperature]
    if not rows:
        return None
    decodings = [canvases[i].request.decoding for i in rows]
    return Sampling(
        rows=np.array(rows, dtype=np.int64),
        temperature=np.array([d.temperature for d in decodings], dtype=np.float32),
        top_k=np.array([d.top_k for d in decodings], dtype=np.int64),
        top_p=np.array([d.top_p for d in decodings], dtype=np.float32),
        uniforms=np.stack([canvases[i].uniforms()[:width] for i in rows]),
    )
