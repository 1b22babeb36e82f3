"""From a forward's result back to the canvases. Numpy only."""

from __future__ import annotations

import numpy as np

from raydiff.engine.canvas import Canvas
from raydiff.engine.latent_plan import LatentPlan
from raydiff.engine.likelihoods import scored
from raydiff.engine.plan import DenoisePlan, DenoiseResult
from raydiff.engine.rows import gather


def apply(result: DenoiseResult, plan: DenoisePlan | LatentPlan, row: int, canvas: Canvas) -> int:
    """Let a canvas take its row of a result; returns how many positions the forward decided."""
    at, length = int(plan.frame_at[row]), len(canvas.frame)
    if result.best is not None:
        assert result.best_confidence is not None
        assert result.confidence is not None
        canvas.observe(
            gather(result.best[row], at, length, -1),
            gather(result.best_confidence[row], at, length, 0.0),
            gather(result.confidence[row], at, length, 0.0),
        )
    told = canvas.written.likelihoods
    if told is not None and result.likelihoods is not None:
        told.see(scored(result.likelihoods, row, result.candidates[row], at, length))
    before = int(canvas.open.sum())
    was_open, is_open = plan.open[row], result.open[row]
    if canvas.revising:
        canvas.revise(
            gather(result.tokens[row], at, length, 0),
            gather(is_open, at, length, False),
            bool(result.final[row]),
        )
        return max(0, before - int(canvas.open.sum()))
    commit = gather(was_open & ~is_open, at, length, False)
    if canvas.choices is not None:
        assert result.chosen is not None
        return canvas.choose(
            gather(result.tokens[row], at, length, 0), commit, float(result.chosen[row])
        )
    # beside what the policy commits, a canvas may take other candidates
    tokens = np.where(was_open & ~is_open, result.tokens[row], result.candidates[row])
    canvas.commit(gather(tokens, at, length, 0), commit)
    return int(commit.sum())
