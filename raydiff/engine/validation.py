"""What can never run is refused before it is queued."""

from __future__ import annotations

from collections.abc import Sequence

from raydiff.decoding import require
from raydiff.errors import PromptTooLong, UsageError, invalid
from raydiff.request import Decoding, GenerationRequest
from raydiff.spec import ModelSpec

MAX_CHOICES = 4096
"""Most choices of one request: all their tokens are scored in each of its forwards."""


MAX_LOGPROBS = 20
"""Most alternatives that a request may ask for with each token's log-probability."""


def check_request(request: GenerationRequest, spec: ModelSpec) -> None:
    """Check a request against the model.

    Raises:
        PromptTooLong: the prompt exceeds the context.
        DecodingError: a decoding value is impossible for the model.
        UsageError: the prompt is empty, a token id or a pin is out of range, or the choices cannot
            be told apart or can never come out; or log-probabilities are asked for that there are
            none of.
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
    if request.logprobs is not None:
        _check_logprobs(request, request.logprobs, spec)
    if request.choices:
        got = f"{len(request.pinned)} pinned positions"
        _require_choices(not request.pinned, "no pinned positions beside choices", got)
        check_choices(request.choices, resolved, spec)


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


def _check_logprobs(request: GenerationRequest, asked: int, spec: ModelSpec) -> None:
    """Only where each token is decided by a forward that has a distribution over tokens."""

    def refuse(expected: str, got: object) -> UsageError:
        return UsageError(invalid("logprobs", expected=expected, got=got), "logprobs")

    if not 0 <= asked <= MAX_LOGPROBS:
        raise refuse(f"an integer in [0, {MAX_LOGPROBS}]", asked)
    if request.choices:
        raise refuse("none beside choices, whose probability is choice_probability", asked)
    if spec.noise == "gaussian":
        raise refuse(f"none of model {spec.name!r}, which denoises embeddings, not tokens", asked)


def _check_pins(request: GenerationRequest, spec: ModelSpec) -> None:
    limit = request.decoding.max_tokens or 0
    for offset, token in request.pinned:
        if not 0 <= offset < limit or not 0 <= token < spec.vocab_size:
            expected = f"offsets below max_tokens ({limit}) and ids below {spec.vocab_size}"
            raise UsageError(invalid("pinned", expected=expected, got=(offset, token)), "pinned")


def check_choices(choices: Sequence[tuple[int, ...]], decoding: Decoding, spec: ModelSpec) -> None:
    """Check that a model can choose among texts that way. `decoding` is resolved.

    Raises:
        DecodingError: a setting contradicts the choices.
        UsageError: there are too many or two are alike, one has an id that the model lacks or
            never writes, or the model does not denoise tokens.
    """
    _check_tokens(choices, spec)
    _check_choosing(choices, decoding, spec)


def _check_tokens(choices: Sequence[tuple[int, ...]], spec: ModelSpec) -> None:
    _require_choices(len(choices) <= MAX_CHOICES, f"at most {MAX_CHOICES}", len(choices))
    seen = set()
    for choice in choices:
        _require_choices(choice not in seen, "choices that differ in their tokens", choice)
        seen.add(choice)
    used = {token for choice in seen for token in choice}
    beyond = sorted(i for i in used if not 0 <= i < spec.vocab_size)
    _require_choices(not beyond, f"token ids in [0, {spec.vocab_size})", beyond)
    ends = sorted(used & {*spec.end_ids})
    _require_choices(not ends, "no end tokens, which follow a choice by themselves", ends)
    masks = () if spec.noise == "uniform" else (spec.mask_id, *spec.forbidden_ids)
    never = sorted(used & {*masks})
    _require_choices(not never, f"tokens that {spec.name!r} may write", never)


def _require_choices(ok: bool, expected: str, got: object) -> None:
    if not ok:
        raise UsageError(invalid("choices", expected=expected, got=got), "choices")


def _check_choosing(choices: Sequence[tuple[int, ...]], d: Decoding, spec: ModelSpec) -> None:
    """Refuse what contradicts a choice: other tokens than its own, or another end."""
    noised = f"a model of tokens, which {spec.name!r} is not"
    _require_choices(spec.noise != "gaussian", noised, f"{len(choices)} choices")
    lengths = [len(choice) for choice in choices]
    longest, shortest = max(lengths), min(lengths)
    assert d.max_tokens is not None
    expected = f"at least {longest}, the tokens of the longest choice"
    require(d.max_tokens >= longest, "max_tokens", expected, d.max_tokens)
    expected = f"at most {shortest}, the tokens of the shortest choice"
    require(d.min_tokens <= shortest, "min_tokens", expected, d.min_tokens)
    require(not d.ignore_eos, "ignore_eos", "false with choices, which end", d.ignore_eos)
    whole = "With choices a draw is of a whole one."
    require(d.top_p == 1.0, "top_p", "1 with choices", d.top_p, whole)
    require(d.top_k == 0, "top_k", "0 with choices", d.top_k, whole)
    require(not d.stable_steps, "stable_steps", "0 with choices", d.stable_steps)
    usual = d.stop == spec.defaults.stop  # the model's own never cut a choice
    require(usual or not d.stop, "stop", "none with choices, which come out whole", d.stop)
    own = spec.defaults.policy
    final = d.policy not in ("edit", "remask", "speculative") or d.policy == own
    expected = "one that neither revises nor verifies, with choices"
    require(final, "policy", expected, d.policy, "Choices are committed for good.")
