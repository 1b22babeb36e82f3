"""What the engine says of a finished canvas."""

from __future__ import annotations

from raydiff.engine.canvas import Canvas
from raydiff.engine.plan import EncodePlan
from raydiff.engine.scheduler import Plan
from raydiff.request import Completion, RequestStats, Usage


def completion_of(canvas: Canvas) -> Completion:
    """The completion of a finished canvas; only text before the end counts."""
    assert canvas.finish_reason is not None
    transcript = canvas.transcript
    began = canvas.first_forward_s
    return Completion(
        request_id=canvas.request_id,
        text=transcript.text,
        token_ids=transcript.token_ids,
        finish_reason=canvas.finish_reason,
        usage=Usage(
            prompt_tokens=canvas.prompt_length,
            completion_tokens=len(transcript.token_ids),
            forwards=canvas.forwards,
        ),
        error=canvas.error,
        queue_s=0.0 if began is None else began - canvas.submitted_s,
    )


def request_stats(canvas: Canvas, completion: Completion, now_s: float) -> RequestStats:
    """The record of a finished canvas for the Recorder; `now_s` is monotonic."""
    first = canvas.first_commit_s
    began = now_s if canvas.first_forward_s is None else canvas.first_forward_s
    return RequestStats(
        outcome=completion.finish_reason,
        lane=canvas.request.lane,
        usage=completion.usage,
        queue_s=began - canvas.submitted_s,
        first_commit_s=None if first is None else first - canvas.submitted_s,
        total_s=now_s - canvas.submitted_s,
    )


def positions_of(plan: Plan) -> int:
    """Token positions that a plan computes, padding left out."""
    if isinstance(plan, EncodePlan):
        return sum(map(len, plan.tokens))
    contexts = () if plan.contexts is None else plan.contexts.tokens
    return int(plan.live.sum()) + sum(map(len, contexts))
