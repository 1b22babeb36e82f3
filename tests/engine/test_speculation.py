"""Self-speculation gives the model's own greedy autoregressive text in fewer forwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from raydiff.decoding import Decoding
from raydiff.engine import Engine
from raydiff.errors import DecodingError
from raydiff.models.loading import load_denoiser
from raydiff.request import GenerationRequest
from raydiff.text import Tokenizer
from tests.families.tiny import BY_NAME, END, MASK, TINY, Tiny

BLOCK_CAUSAL = [tiny for tiny in TINY if tiny.block_length]
MAX_TOKENS = 13
SPECULATIVE = Decoding(policy="speculative", max_tokens=MAX_TOKENS, ignore_eos=True)


@pytest.fixture(scope="module", params=BLOCK_CAUSAL, ids=lambda tiny: tiny.name)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tiny, Engine]:
    tiny: Tiny = request.param
    engine = Engine.load(tiny.save(tmp_path_factory.mktemp(tiny.name)), device="cpu", dtype="fp32")
    torch.set_num_threads(1)
    return tiny, engine


def prompts(lengths: Sequence[int] = (3, 8, 13)) -> list[list[int]]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(0, MASK, (n,), generator=generator).tolist() for n in lengths]


def sees(length: int, complete: int, block_length: int) -> Tensor:
    """Whole blocks below `complete` see themselves in both directions, the rest is causal."""
    at = torch.arange(length)
    block = at // block_length
    whole = (block + 1) * block_length <= complete
    same = block[:, None] == block[None, :]
    causal = at[:, None] >= at[None, :]
    return (block[:, None] > block[None, :]) | (same & (whole[:, None] | causal))


def autoregressive(
    tiny: Tiny,
    prompt: Sequence[int],
    shift: bool,
    forbidden: Sequence[int] = (MASK, END),
    given: Mapping[int, int] | None = None,
) -> list[int]:
    """One token after another, everything computed anew for each."""
    assert tiny.block_length
    tokens = list(prompt)
    while len(tokens) < len(prompt) + MAX_TOKENS:
        at = len(tokens)
        row = torch.tensor(tokens if shift else [*tokens, MASK])
        logits = tiny.logits(row, sees(len(row), at, tiny.block_length))[-1]
        logits[list(forbidden)] = -torch.inf
        tokens.append((given or {}).get(at - len(prompt), int(logits.argmax())))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("cache", ["auto", "none"])
def test_the_text_is_the_models_own_greedy_one(pair: tuple[Tiny, Engine], cache: str) -> None:
    tiny, engine = pair
    decoding = Decoding.from_mapping({**SPECULATIVE.given(), "cache": cache})
    completions = engine.generate(prompts(), decoding)
    expected = [tuple(autoregressive(tiny, p, engine.spec.shift)) for p in prompts()]
    assert [c.token_ids for c in completions] == expected
    assert all(c.usage.forwards <= 2 * MAX_TOKENS for c in completions)


def test_blocks_may_be_drafted_part_by_part(pair: tuple[Tiny, Engine]) -> None:
    tiny, engine = pair
    part = max(2, engine.spec.block_length // 4)
    decoding = Decoding.from_mapping({**SPECULATIVE.given(), "block_length": part})
    (prompt,) = prompts([5])
    (completion,) = engine.generate([prompt], decoding)
    assert list(completion.token_ids) == autoregressive(tiny, prompt, engine.spec.shift)


def test_rows_of_other_policies_beside_it_change_nothing(pair: tuple[Tiny, Engine]) -> None:
    _, engine = pair
    other = engine.spec.resolve(Decoding(policy="threshold", max_tokens=MAX_TOKENS, seed=1))
    own = engine.spec.resolve(SPECULATIVE)
    requests = [
        GenerationRequest(request_id=f"{i}{d.policy}", prompt_ids=tuple(prompt), decoding=d)
        for i, prompt in enumerate(prompts())
        for d in (own, other)
    ]
    for request in requests:
        engine.submit(request)
    done = {}
    while engine.has_work():
        done.update({e.request_id: e.completion for e in engine.step() if e.completion})
    for i, prompt in enumerate(prompts()):
        for d in (own, other):
            (alone,) = engine.generate([prompt], d)
            assert done[f"{i}{d.policy}"].token_ids == alone.token_ids


def test_given_tokens_stay_and_are_not_foreseen(pair: tuple[Tiny, Engine]) -> None:
    tiny, engine = pair
    (prompt,) = prompts([6])
    given = {1: 17, 5: 23, 6: 29}
    request = GenerationRequest(
        request_id="given",
        prompt_ids=tuple(prompt),
        decoding=engine.spec.resolve(SPECULATIVE),
        pinned=tuple(given.items()),
    )
    engine.submit(request)
    events = [event for _ in range(100) if engine.has_work() for event in engine.step()]
    (completion,) = [event.completion for event in events if event.completion]
    expected = autoregressive(tiny, prompt, engine.spec.shift, given=given)
    assert list(completion.token_ids) == expected


@pytest.mark.parametrize("name", ["sdar", "fast-dllm"])
def test_the_text_ends_where_the_greedy_one_does(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tiny = BY_NAME[name]
    folder = tiny.save(tmp_path_factory.mktemp(name))
    denoiser = load_denoiser(folder, device="cpu", dtype="fp32")
    (prompt,) = prompts([5])
    text = autoregressive(tiny, prompt, denoiser.spec.shift, forbidden=(MASK,))
    end = next(token for i, token in enumerate(text) if i >= 4 and token not in text[:i])
    denoiser.spec = replace(denoiser.spec, end_ids=(end,))
    engine = Engine(denoiser, Tokenizer.load(folder))
    (completion,) = engine.generate([prompt], replace(SPECULATIVE, ignore_eos=False))
    assert list(completion.token_ids) == text[: text.index(end)]
    assert completion.finish_reason == "stop"
    assert completion.usage.forwards <= 2 * (len(completion.token_ids) + 1)


def test_a_draft_that_is_right_costs_two_forwards_a_block(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Without attention a prediction depends on its mask alone, so that every draft is right."""
    tiny = BY_NAME["sdar"]
    deaf = replace(tiny)
    deaf.weights.update(
        {key: 0 * w for key, w in tiny.weights.items() if key.endswith("o_proj.weight")}
    )
    engine = Engine.load(deaf.save(tmp_path_factory.mktemp("deaf")), device="cpu", dtype="fp32")
    decoding = Decoding(policy="speculative", max_tokens=12, ignore_eos=True)
    (completion,) = engine.generate(prompts([8]), decoding)
    assert completion.usage.forwards == 2 * 3
    assert len(completion.token_ids) == 12


@pytest.mark.parametrize("setting", [{"temperature": 0.5}, {"guidance": 1.0}, {"stable_steps": 2}])
def test_what_is_not_greedy_is_refused(
    pair: tuple[Tiny, Engine], setting: dict[str, float]
) -> None:
    _, engine = pair
    (name,) = setting
    with pytest.raises(DecodingError, match=name):
        engine.spec.resolve(Decoding.from_mapping({**SPECULATIVE.given(), **setting}))
