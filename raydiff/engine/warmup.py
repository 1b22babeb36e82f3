"""Requests that make every shape bucket run once."""

from __future__ import annotations

from collections.abc import Iterator

from raydiff.engine.memory import CONTEXT_BUCKETS
from raydiff.request import Decoding, GenerationRequest
from raydiff.spec import ModelSpec


def warm_up_requests(spec: ModelSpec) -> Iterator[GenerationRequest]:
    """One two-forward request for each context bucket that the model's prompts can reach."""
    lengths = {min(bucket, spec.prompt_limit(max_tokens=1)) for bucket in CONTEXT_BUCKETS}
    token = spec.end_ids[0]
    decoding = spec.resolve(Decoding(max_tokens=1, steps=1))
    for length in sorted(lengths):
        # not interactive: the scheduler would expect more of them, and keep batch forwards short
        yield GenerationRequest(
            request_id=f"warm-up-{length}",
            prompt_ids=(token,) * length,
            decoding=decoding,
            lane="batch",
        )
