"""What can never run is refused before it is queued."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raydiff.engine.validation import check_request
from raydiff.engine.warmup import warm_up_requests
from raydiff.errors import PromptTooLong, UsageError
from raydiff.request import Decoding, GenerationRequest
from raydiff.spec import ModelSpec, Noise
from tests.test_spec import make_spec


def _request(length: int, **values: int) -> GenerationRequest:
    decoding = Decoding(**{"max_tokens": 32, **values})
    return GenerationRequest(request_id="a", prompt_ids=(3,) * length, decoding=decoding)


@pytest.fixture
def spec() -> ModelSpec:
    """Prompts of at most 64 tokens, texts of at most 128, together at most 100."""
    return replace(make_spec(), context_length=100)


def test_a_prompt_of_the_greatest_length_passes_and_a_longer_one_does_not(spec: ModelSpec) -> None:
    check_request(_request(64), spec)
    with pytest.raises(PromptTooLong, match="at most 64 tokens for model 'toy', got 65"):
        check_request(_request(65), spec)


def test_prompt_and_text_share_the_context_and_both_numbers_are_named(spec: ModelSpec) -> None:
    check_request(_request(20, max_tokens=80), spec)
    says = r"at most 20 tokens beside max_tokens \(80\), in a context of 100 .*got 21"
    with pytest.raises(PromptTooLong, match=says) as caught:
        check_request(_request(21, max_tokens=80), spec)
    assert "Lower max_tokens" in str(caught.value)


def test_the_models_own_max_tokens_counts_where_the_request_names_none(spec: ModelSpec) -> None:
    spec = replace(spec, defaults=Decoding(max_tokens=90))
    request = replace(_request(11), decoding=Decoding())
    with pytest.raises(PromptTooLong, match=r"beside max_tokens \(90\)"):
        check_request(request, spec)


@pytest.mark.parametrize("ids", [(), (-1,), (10,)])
def test_a_prompt_of_no_or_unknown_tokens_is_refused(spec: ModelSpec, ids: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="prompt"):
        check_request(replace(_request(1), prompt_ids=ids), spec)


@pytest.mark.parametrize("noise", ["absorbing", "uniform", "gaussian"])
@pytest.mark.parametrize("context_length", [None, 65, 600])
def test_warming_up_asks_for_nothing_that_is_refused(
    noise: Noise, context_length: int | None
) -> None:
    spec = replace(make_spec(noise), max_prompt_tokens=600, context_length=context_length)
    requests = list(warm_up_requests(spec))
    assert requests
    for request in requests:
        check_request(request, spec)
