"""From canvases to plans: stacks their state into arrays. Knows no torch.

Shapes: R rows, G of them guided, W positions of the widest window, F of a frame.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raydiff.engine.asking import end_forbidden, remembers, temperature
from raydiff.engine.canvas import Canvas
from raydiff.engine.choosing import choice_rows
from raydiff.engine.extent import encoded_prompt, model_position, sequence
from raydiff.engine.frame import Ints
from raydiff.engine.likelihoods import likelihood_rows
from raydiff.engine.plan import Contexts, DenoisePlan, EncodePlan, PrefixPlan, Sampling, Shape
from raydiff.engine.policies import policy_rows
from raydiff.engine.prefix import PrefixIndex
from raydiff.engine.rows import Row, stack
from raydiff.engine.segments import segments
from raydiff.engine.speculation import layout, row_of
from raydiff.engine.state import State


def encode_plan(
    canvases: Sequence[Canvas], shape: Shape, prefixes: PrefixIndex | None = None
) -> EncodePlan:
    """Plan the encoding of prompts or of finished frames (never both in one plan).

    Of prompts only what `prefixes` does not have is encoded.
    """
    finished = canvases[0].state is State.ENCODE_BLOCK
    prefix = None if finished or prefixes is None else _prefix_plan(canvases, prefixes)
    taken = [pieces[-1].end if pieces else 0 for pieces in prefix.taken] if prefix else None
    begins = [c.frame.start for c in canvases] if finished else taken or [0] * len(canvases)
    ends = [c.encoded_end for c in canvases]
    spans = list(zip(canvases, begins, ends, strict=True))
    return EncodePlan(
        shape=shape,
        request_ids=tuple(c.request_id for c in canvases),
        tokens=tuple(sequence(c, begin, end) for c, begin, end in spans),
        segments=_segments(spans),
        starts=np.array([model_position(c, b) if b else 0 for c, b, _ in spans], dtype=np.int64),
        cached=np.array(begins, dtype=np.int64),
        prefix=prefix,
    )


def _prefix_plan(canvases: Sequence[Canvas], prefixes: PrefixIndex) -> PrefixPlan:
    prompts = [encoded_prompt(c) for c in canvases]
    # all are taken before any is kept: what one row uses is not evicted for another
    taken = tuple(prefixes.take(prompt) for prompt in prompts)
    outcomes = [prefixes.keep(prompt) for prompt in prompts]
    return PrefixPlan(
        taken=taken,
        evicted=tuple(key for _, evicted in outcomes for key in evicted),
        kept=tuple(kept for kept, _ in outcomes),
    )


def _segments(spans: Sequence[tuple[Canvas, int, int]]) -> tuple[Ints, ...] | None:
    rows = tuple(
        segments(c.spec, begin, end, c.prompt_length, c.block_length) for c, begin, end in spans
    )
    return None if all((row[:1] == row[-1:]).all() for row in rows) else rows


def denoise_plan(canvases: Sequence[Canvas], shape: Shape) -> DenoisePlan:
    """Plan one denoising forward over canvases of one shape."""
    rows = [row_of(canvas) for canvas in canvases]
    width = max(row.width for row in rows)
    guided = [i for i, row in enumerate(rows) if row.canvas.request.decoding.guidance]
    fed = [*rows, *(rows[i].unconditional() for i in guided)]
    windows = [row.window for row in fed]
    revises = np.array([canvas.revising for canvas in canvases])
    blind = np.array([w.blind_first for w in windows])
    spec = canvases[0].spec
    return DenoisePlan(
        shape=shape,
        request_ids=tuple(c.request_id for c in canvases),
        tokens=stack([row.tokens for row in fed], width, spec.pad_id),
        live=stack([row.live for row in fed], width, False),
        starts=_ints([model_position(row.canvas, row.window.begin) for row in fed]),
        before=_ints([w.before for w in windows]),
        after=np.array([(w.end, max(w.end, w.until)) for w in windows], dtype=np.int64),
        blind_first=blind if blind.any() else None,
        contexts=_contexts(fed) if _encodes_anew(canvases[0]) else None,
        layout=layout(rows, width),
        frame_at=_ints([row.frame_at for row in rows]),
        open=stack([row.spread(row.canvas.eligible(), False) for row in rows], width, False),
        revisable=stack([row.spread(row.revisable(), False) for row in rows], width, False)
        if revises.any()
        else None,
        revises=revises,
        end_forbidden=stack(
            [row.spread(end_forbidden(row.canvas), False) for row in rows], width, False
        ),
        at_least=_ints([c.block.at_least for c in canvases]),
        policies=policy_rows(rows, width),
        choices=choice_rows(canvases),
        likelihoods=likelihood_rows([c.request.logprobs for c in canvases]),
        sampling=_sampling(rows, width),
        guided=_ints(guided),
        guidance=np.array(
            [canvases[i].request.decoding.guidance for i in guided], dtype=np.float32
        ),
        fresh=np.array([c.step == 0 for c in canvases]) if spec.self_conditioning else None,
        remembers=any(remembers(c) for c in canvases),
    )


def _encodes_anew(canvas: Canvas) -> bool:
    return canvas.spec.attention != "full" and not canvas.cached


def _contexts(rows: Sequence[Row]) -> Contexts:
    return Contexts(
        tokens=tuple(row.context for row in rows),
        segments=tuple(
            segments(
                row.canvas.spec,
                0,
                len(row.context),
                row.canvas.prompt_length,
                row.canvas.block_length,
            )
            for row in rows
        ),
        positions=tuple(row.context_positions() for row in rows),
    )


def _sampling(rows: Sequence[Row], width: int) -> Sampling | None:
    at = [i for i, row in enumerate(rows) if temperature(row.canvas) > 0]
    if not at:
        return None
    decodings = [rows[i].canvas.request.decoding for i in at]
    return Sampling(
        rows=_ints(at),
        temperature=np.array([temperature(rows[i].canvas) for i in at], dtype=np.float32),
        top_k=_ints([d.top_k for d in decodings]),
        top_p=np.array([d.top_p for d in decodings], dtype=np.float32),
        uniforms=stack([rows[i].spread(rows[i].canvas.uniforms(), 0.0) for i in at], width, 0.0),
    )


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)
