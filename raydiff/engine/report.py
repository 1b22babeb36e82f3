"""What the engine says of a finished canvas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydiff.engine.canvas import Canvas
from raydiff.engine.frame import Ints
from raydiff.engine.latent_plan import LatentPlan
from raydiff.engine.memory import USED_STEP
from raydiff.engine.plan import EncodePlan
from raydiff.engine.scheduler import Plan
from raydiff.engine.snapshots import snapshot_of
from raydiff.request import Completion, Event, RequestStats, Usage


def completion_of(canvas: Canvas, now_s: float) -> Completion:
    """The completion of a finished canvas; only text before the end counts.

    `now_s` is monotonic.
    """
    assert canvas.finish_reason is not None
    transcript = canvas.transcript
    began = canvas.first_forward_s
    return Completion(
        request_id=canvas.request_id,
        text=transcript.text,
        token_ids=transcript.token_ids,
        finish_reason=canvas.finish_reason,
        usage=_usage(canvas, len(transcript.token_ids)),
        error=canvas.error,
        choice_probability=_choice_probability(canvas),
        logprobs=canvas.written.logprobs(),
        queue_s=0.0 if began is None else began - canvas.submitted_s,
        total_s=now_s - canvas.submitted_s,
    )


def event_of(canvas: Canvas, completion: Completion | None = None) -> Event | None:
    """What became of a streamed canvas since the last call: committed text with its
    log-probabilities, the usage so far, and the whole canvas where that is asked for; `None` if
    there is nothing to say. The last event brings the completion."""
    text = canvas.transcript.take()
    snapshot = None
    if canvas.request.snapshots and canvas.request.stream:
        snapshot = snapshot_of(canvas) if completion is None else completion.text
    if not text and snapshot is None and completion is None:
        return None
    tokens = canvas.transcript.sent_tokens() if canvas.request.stream else 0
    return Event(
        request_id=canvas.request_id,
        text=text,
        completion=completion,
        logprobs=canvas.written.take_logprobs(tokens),
        usage=_usage(canvas, tokens) if canvas.request.stream else None,
        snapshot=snapshot,
    )


def _usage(canvas: Canvas, tokens: int) -> Usage:
    return Usage(
        prompt_tokens=canvas.prompt_length, completion_tokens=tokens, forwards=canvas.forwards
    )


def _choice_probability(canvas: Canvas) -> float | None:
    """Of the choice that a canvas took, if it took one."""
    if canvas.choices is None or canvas.choices.decided is None:
        return None
    return canvas.choices.probability


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


@dataclass(frozen=True)
class Positions:
    """What a forward computes and reads, and what its tensors hold beside that."""

    computed: int
    padding: int
    context: int
    """Cached positions that rows attend to."""
    context_padding: int


def positions_of(plan: Plan) -> Positions:
    """Count a plan's positions. Rows of one forward are padded to the longest of them."""
    if isinstance(plan, EncodePlan):
        lengths = [len(tokens) for tokens in plan.tokens]
        computed = sum(lengths)
        padding = len(lengths) * max(lengths) - computed
        return Positions(computed, padding, *_read(plan.cached, plan.cached))
    contexts = () if plan.contexts is None else plan.contexts.tokens
    lengths = [len(tokens) for tokens in contexts]
    computed = int(plan.live.sum()) + sum(lengths)
    places = plan.tokens.size + len(lengths) * max(lengths, default=0)
    if isinstance(plan, LatentPlan) or plan.shape.context == 0 or plan.shape.store:
        return Positions(computed, places - computed, 0, 0)
    begins, ends = plan.after[:, 0], plan.after[:, 1]
    seen = plan.before + np.maximum(ends - begins, 0)
    return Positions(computed, places - computed, *_read(seen, np.maximum(plan.before, ends)))


def _read(seen: Ints, reach: Ints) -> tuple[int, int]:
    """Cached positions that rows see, and those read beside them: all rows are read as far as the
    farthest reaches."""
    read = len(seen) * -(-int(reach.max(initial=0)) // USED_STEP) * USED_STEP
    context = int(seen.sum())
    return context, read - context
