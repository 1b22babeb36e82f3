"""Log-probabilities of committed tokens, beside a plain computation with the same network in fp32.

The plain computation runs Hugging Face's whole network on prompt and canvas, uncached, as they
stood before each forward of a request that runs alone, and notes what the forward decided.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch

from raydiff.engine import Engine
from raydiff.engine.canvas import Canvas
from raydiff.engine.extent import sequence
from raydiff.errors import UsageError
from raydiff.models.bert import BertDenoiser
from raydiff.request import Completion, Decoding, Event, GenerationRequest, TokenLogprob
from tests.engine.test_small_models import ABSORBING, UNIFORM, documents, engine_of, loaded
from tests.families.tiny import TINY, Tiny

TOP = 4
MODELS = {
    "tiny-uniform": UNIFORM,
    "tiny-masked": (
        *ABSORBING,
        Decoding(policy="quota", steps=6, stable_steps=1),
        Decoding(policy="threshold", threshold=0.9, ignore_eos=True, max_tokens=20),
        Decoding(policy="quota", steps=4, temperature=1.0, top_k=3, seed=7),
    ),
    "tiny-discrete-flow": ABSORBING[:4],
}
CASES = [
    pytest.param(name, decoding, id=f"{name}-{number}-{decoding.policy}")
    for name, decodings in MODELS.items()
    for number, decoding in enumerate(decodings)
]


def plain_logprobs(name: str, canvas: Canvas) -> torch.Tensor:
    """(F, V) of the canvas's frame as it stands."""
    denoiser = cast(BertDenoiser, loaded(name))
    spec, frame, prompt = denoiser.spec, canvas.frame, canvas.prompt_length
    tokens = np.concatenate([sequence(canvas, 0, frame.start), frame.tokens])
    total = len(tokens) if spec.attention != "full" else prompt + canvas.max_tokens
    at = np.arange(total)
    assert spec.target_position is not None
    positions = np.where(at < prompt, at, spec.target_position + at - prompt)
    # blocks see what lies before them and themselves; under full attention everything is one
    part = np.where(at < prompt, 0, 1 + (at - prompt) // canvas.geometry.frame_length)
    sees = part[:, None] >= part[None, :] if spec.attention != "full" else np.ones((total, total))
    mask = torch.zeros(1, 1, total, total).masked_fill(~torch.tensor(sees > 0), float("-inf"))
    with torch.no_grad():
        logits = denoiser.model(
            input_ids=torch.tensor(tokens[None, :total]),
            attention_mask=mask,
            position_ids=torch.tensor(positions[None]),
            token_type_ids=torch.tensor((at >= prompt)[None]).long(),
        ).logits[0, frame.start :]
    if spec.noise != "uniform":
        logits[:, [spec.mask_id, *spec.forbidden_ids]] = float("-inf")
    own: torch.Tensor = logits.log_softmax(dim=-1)
    return own


def run_plainly(engine: Engine, name: str, request: GenerationRequest) -> list[TokenLogprob]:
    """Step a request to its end alone; what the plain computation says of its tokens."""
    engine.submit(request)
    (canvas,) = engine.canvases()
    found: dict[int, TokenLogprob] = {}
    done: Completion | None = None
    while done is None:
        frame = canvas.frame
        tokens, was_open = frame.tokens.copy(), frame.open.copy()
        forwards, first = canvas.forwards, len(canvas.written) - frame.lead
        expected = plain_logprobs(name, canvas)
        done = next((e.completion for e in engine.step() if e.completion), None)
        if canvas.forwards == forwards:
            continue
        for place in np.flatnonzero(~frame.open & (was_open | (tokens != frame.tokens))):
            token = int(frame.tokens[place])
            top = expected[place].topk(TOP)
            found[first + int(place)] = TokenLogprob(
                token_id=token,
                logprob=float(expected[place, token]),
                top=tuple(zip(top.indices.tolist(), top.values.tolist(), strict=True)),
            )
    return [found[offset] for offset in range(len(done.token_ids))]


def assert_alike(got: tuple[TokenLogprob, ...] | None, expected: list[TokenLogprob]) -> None:
    assert got is not None
    assert [p.token_id for p in got] == [p.token_id for p in expected]
    assert [p.logprob for p in got] == pytest.approx([p.logprob for p in expected], abs=2e-4)
    for mine, theirs in zip(got, expected, strict=True):
        assert [v for _, v in mine.top] == pytest.approx([v for _, v in theirs.top], abs=2e-4)
        values = dict(theirs.top)
        for token, value in mine.top:
            assert values.get(token, theirs.top[-1][1]) == pytest.approx(value, abs=2e-4)


def request_of(
    engine: Engine, text: str, decoding: Decoding, logprobs: int | None = TOP, name: str = "r"
) -> GenerationRequest:
    ids = engine.tokenizer.wrap(engine.tokenizer.encode(text)[: engine.tokenizer.max_text_tokens])
    return engine.request(ids, decoding, request_id=name, logprobs=logprobs)


def run(engine: Engine, requests: list[GenerationRequest]) -> dict[str, Completion]:
    for request in requests:
        engine.submit(request)
    done: dict[str, Completion] = {}
    while engine.has_work():
        done |= {e.request_id: e.completion for e in engine.step() if e.completion}
    return done


@pytest.mark.parametrize(("name", "decoding"), CASES)
def test_each_token_has_its_probability_in_the_forward_that_decided_it(
    name: str, decoding: Decoding
) -> None:
    """At temperature 1 and without guidance, whatever the policy; alone, and in a batch beside
    rows that do not ask."""
    (text,), _ = documents(1)
    engine = engine_of(name)
    expected = run_plainly(engine, name, request_of(engine, text, decoding))
    assert expected
    crowd = engine_of(name)
    others = [
        request_of(crowd, text[i:], replace(decoding, seed=i), None if i % 2 else i, f"{i}")
        for i in range(4)
    ]
    done = run(crowd, [*others[:2], request_of(crowd, text, decoding), *others[2:]])
    assert_alike(done["r"].logprobs, expected)
    assert [done[str(i)].logprobs is None for i in range(4)] == [False, True, False, True]
    assert all(not p.top for p in done["0"].logprobs or ())


@pytest.mark.parametrize(("name", "decoding"), CASES[::5])
def test_asking_changes_no_token_of_any_row(name: str, decoding: Decoding) -> None:
    texts, _ = documents(4)

    def tokens(*asked: int | None) -> list[tuple[int, ...]]:
        engine = engine_of(name)
        requests = [
            request_of(engine, text, decoding, top, str(i))
            for i, (text, top) in enumerate(zip(texts, asked, strict=True))
        ]
        done = run(engine, requests)
        return [done[str(i)].token_ids for i in range(len(texts))]

    assert tokens(None, None, None, None) == tokens(3, None, 0, None)


def events_of(engine: Engine, request: GenerationRequest) -> list[Event]:
    engine.submit(replace(request, stream=True))
    events: list[Event] = []
    while engine.has_work():
        events += engine.step()
    return events


@pytest.mark.parametrize("stop", [(), ("e",), ("th", "the ", "ing")])
@pytest.mark.parametrize("name", MODELS)
def test_a_streams_events_bring_the_completions_logprobs_in_order(
    name: str, stop: tuple[str, ...]
) -> None:
    (text,), _ = documents(1)
    engine = engine_of(name)
    decoding = Decoding(stop=stop, seed=3, max_tokens=24)
    events = events_of(engine, request_of(engine, text, decoding))
    last = events[-1].completion
    assert last is not None
    assert last.logprobs is not None
    assert [p.token_id for p in last.logprobs] == list(last.token_ids)
    assert tuple(p for event in events for p in event.logprobs) == last.logprobs
    seen = 0
    for event in events:
        seen += len(event.logprobs)
        assert event.usage is not None
        assert event.usage.completion_tokens == seen
    assert events[-1].usage == last.usage


def test_a_pinned_token_is_certain_and_has_no_alternatives() -> None:
    (text,), _ = documents(1)
    engine = engine_of("tiny-masked")
    request = request_of(engine, text, Decoding(max_tokens=8, ignore_eos=True))
    done = run(engine, [replace(request, pinned=((2, 900),))])["r"]
    assert done.logprobs is not None
    assert done.logprobs[2] == TokenLogprob(token_id=900, logprob=0.0)
    assert all(p.logprob < 0 for i, p in enumerate(done.logprobs) if i != 2)


def test_an_embedding_model_and_choices_have_none() -> None:
    latent = engine_of("tiny-flow")
    with pytest.raises(UsageError, match="logprobs: expected none of model"):
        latent.submit(latent.request("a", logprobs=0))
    engine = engine_of("tiny-masked")
    choosing = replace(engine.request("a", logprobs=1), choices=((5,), (6,)))
    with pytest.raises(UsageError, match="choice_probability"):
        engine.submit(choosing)
    for asked in (-1, 21):
        with pytest.raises(UsageError, match=r"logprobs: expected an integer in \[0, 20\]"):
            engine.submit(engine.request("a", logprobs=asked))


@pytest.mark.parametrize("tiny", [t for t in TINY if t.block_length], ids=lambda t: t.name)
@pytest.mark.parametrize("policy", ["quota", "speculative"])
def test_a_greedy_token_is_the_likeliest_in_the_forward_that_decided_it(
    tiny: Tiny, policy: str, tmp_path: Path
) -> None:
    """Also where a causal pass decides it, and where logits are shifted by one position."""
    engine = Engine.load(tiny.save(tmp_path / tiny.name), device="cpu", dtype="fp32")
    torch.set_num_threads(1)
    decoding = Decoding.from_mapping({"policy": policy, "max_tokens": 13, "temperature": 0.0})
    done = run(engine, [engine.request([5, 6, 7], decoding, request_id="r", logprobs=2)])["r"]
    assert done.logprobs is not None
    assert [p.token_id for p in done.logprobs] == list(done.token_ids)
    for place in done.logprobs:
        assert place.top[0] == (place.token_id, place.logprob)
        assert place.logprob > place.top[1][1]
