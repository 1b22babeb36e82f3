"""What can never run is refused before it is queued."""

from __future__ import annotations

from raydiff.errors import PromptTooLong, UsageError, invalid
from raydiff.request import GenerationRequest
from raydiff.spec import ModelSpec


def check_request(request: GenerationRequest, spec: ModelSpec) -> None:
    """Check a request against the model.

    Raises:
        PromptTooLong: the prompt exceeds the context.
        DecodingError: a decoding value is impossible for the model.
        UsageError: the prompt is empty, or a token id or a pin is out of range.
    """
    resolved = spec.resolve(request.decoding)
    length = len(request.prompt_ids)
    _check_length(length, resolved.max_tokens or 1, spec)
    if length == 0:
        raise UsageError(invalid("prompt", expected="at least one token", got=0), "prompt")
    low, high = min(request.prompt_ids), max(request.prompt_ids)
    if low < 0 or high >= spec.vocab_size:
        expected = f"token ids in [0, {spec.vocab_size})"
        raise UsageError(invalid("prompt", expected=expected, got=(low, high)), "prompt")
    _check_pins(request, spec)


def _check_length(length: int, max_tokens: int, spec: ModelSpec) -> None:
    limit = spec.prompt_limit(max_tokens)
    if length <= limit:
        return
    expected = f"at most {spec.max_prompt_tokens} tokens for model {spec.name!r}"
    remedy = "Shorten it, or summarise it as a corpus document, which is split."
    if limit < spec.max_prompt_tokens:
        expected = (
            f"at most {limit} tokens beside max_tokens ({max_tokens}), in a context of "
            f"{spec.context_length} for model {spec.name!r}"
        )
        remedy = f"Lower max_tokens. {remedy}"
    message = invalid("prompt", expected=expected, got=length, remedy=remedy)
    raise PromptTooLong(message, param="prompt")


def _check_pins(request: GenerationRequest, spec: ModelSpec) -> None:
    limit = request.decoding.max_tokens or 0
    for offset, token in request.pinned:
        if not 0 <= offset < limit or not 0 <= token < spec.vocab_size:
            expected = f"offsets below max_tokens ({limit}) and ids below {spec.vocab_size}"
            raise UsageError(invalid("pinned", expected=expected, got=(offset, token)), "pinned")
