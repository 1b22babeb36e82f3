"""Embeddings are denoised as the papers' loops do, each row as if it were alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.engine import Engine
from raydiff.models.embedding import EmbeddingDenoiser
from raydiff.request import Completion, Decoding, GenerationRequest
from tests.engine.conftest import character_tokenizer
from tests.engine.plain_latent import PlainLoop
from tests.models import tiny_embedding as tiny

PROMPTS = ((1, 5, 6, 7, 2), (1, 9, 2), (1, *range(4, 20), 2))
SOLVERS = ("ddpm", "ddim", "dpm++", "plms", "euler", "heun")
KINDS: dict[str, dict[str, Any]] = {
    "x0": {"prediction": "x0", "noise_schedule": "sqrt"},
    "epsilon": {
        "prediction": "epsilon",
        "noise_schedule": "sqrt",
        "first_time": 0.98,
        **tiny.CROSS,
    },
    "velocity": {"prediction": "velocity", "noise_schedule": "rectified", **tiny.CROSS},
}


@pytest.fixture(scope="module")
def denoisers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, EmbeddingDenoiser]:
    return {
        kind: tiny.load(
            tiny.save(
                Path(tmp_path_factory.mktemp(kind)),
                {**tiny.OWN, **settings},
                tiny.weights("cross_attention" in settings),
            )
        )
        for kind, settings in KINDS.items()
    }


def engine_of(denoiser: EmbeddingDenoiser) -> Engine:
    return Engine(denoiser, character_tokenizer(denoiser.spec))


def request(
    engine: Engine, name: str, prompt: tuple[int, ...], pinned: dict[int, int], **decoding: Any
) -> GenerationRequest:
    made = engine.request(prompt, Decoding(**decoding), request_id=name)
    return replace(made, pinned=tuple(pinned.items()))


def run(engine: Engine, *requests: GenerationRequest) -> dict[str, Completion]:
    for submitted in requests:
        engine.submit(submitted)
    return drain(engine)


def drain(engine: Engine) -> dict[str, Completion]:
    done: dict[str, Completion] = {}
    while engine.has_work():
        for event in engine.step():
            if event.completion is not None:
                done[event.request_id] = event.completion
    return done


def until_end(tokens: list[int]) -> tuple[int, ...]:
    return tuple(tokens[: tokens.index(2)] if 2 in tokens else tokens)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_tokens_are_those_of_the_plain_loop(
    denoisers: dict[str, EmbeddingDenoiser], kind: str, solver: str
) -> None:
    engine = engine_of(denoisers[kind])
    for number, settings_ in enumerate(
        (
            {"solver_order": 3} if solver == "dpm++" else {},
            {"eta": 0.7, "rounding": "cosine"} if solver == "ddim" else {"rounding": "cosine"},
            {"clamp": True, "rounding": "softmax"},
        )
    ):
        pinned = {2: 11, 5: 12} if number == 2 else {}
        decoding = {"solver": solver, "steps": 5, "seed": number, "max_tokens": 9, **settings_}
        made = request(engine, str(number), PROMPTS[number], pinned, **decoding)
        (completion,) = run(engine, made).values()
        loop = PlainLoop(denoisers[kind], PROMPTS[number], made.decoding, pinned)
        assert completion.token_ids == until_end(loop.tokens())


decodings = st.fixed_dictionaries(
    {
        "solver": st.sampled_from(SOLVERS),
        "steps": st.integers(1, 5),
        "rounding": st.sampled_from(["euclidean", "cosine", "softmax", "gumbel"]),
        "clamp": st.booleans(),
        "temperature": st.sampled_from([0.0, 0.7]),
        "max_tokens": st.integers(1, tiny.TARGET_TOKENS),
        "seed": st.integers(0, 5),
    }
)


@settings(deadline=None, max_examples=25)
@given(rows=st.lists(decodings, min_size=2, max_size=5), kind=st.sampled_from(list(KINDS)))
def test_row_alone_equals_the_row_in_any_batch(
    denoisers: dict[str, EmbeddingDenoiser], rows: list[dict[str, Any]], kind: str
) -> None:
    engine = engine_of(denoisers[kind])
    requests = [
        request(engine, str(i), PROMPTS[i % 3], {0: 11} if i % 2 else {}, **row)
        for i, row in enumerate(rows)
    ]
    alone = {name: done for made in requests for name, done in run(engine, made).items()}
    together = run(engine, *requests)
    assert {n: d.token_ids for n, d in together.items()} == {
        n: d.token_ids for n, d in alone.items()
    }


def test_rows_that_join_and_leave_change_no_other(
    denoisers: dict[str, EmbeddingDenoiser],
) -> None:
    engine = engine_of(denoisers["x0"])
    slow = request(engine, "slow", PROMPTS[0], {}, steps=8, solver="dpm++", seed=1)
    (alone,) = run(engine, slow).values()
    engine.submit(slow)
    engine.step()
    engine.submit(request(engine, "quick", PROMPTS[2], {}, steps=2, solver="plms", seed=2))
    engine.submit(request(engine, "cancelled", PROMPTS[1], {}, steps=8, seed=3))
    engine.step()
    engine.cancel("cancelled")
    assert drain(engine)["slow"].token_ids == alone.token_ids


@pytest.mark.parametrize(("solver", "forwards"), [("ddim", 6), ("dpm++", 6), ("heun", 11)])
def test_every_evaluation_of_the_network_counts(
    denoisers: dict[str, EmbeddingDenoiser], solver: str, forwards: int
) -> None:
    engine = engine_of(denoisers["velocity"])
    made = request(engine, "a", PROMPTS[0], {}, solver=solver, steps=6, seed=0)
    assert run(engine, made)["a"].usage.forwards == forwards


def test_pinned_tokens_stay_and_are_seen(denoisers: dict[str, EmbeddingDenoiser]) -> None:
    engine = engine_of(denoisers["x0"])
    others = set()
    for token in range(10, 20):
        pinned = {1: token, 4: 20}
        made = request(engine, "a", PROMPTS[0], pinned, steps=4, seed=3, ignore_eos=True)
        ids = run(engine, made)["a"].token_ids
        assert (ids[1], ids[4]) == (token, 20)
        others.add((ids[0], *ids[2:4], *ids[5:]))
    assert len(others) > 1


def test_tokens_that_may_not_come_never_do(denoisers: dict[str, EmbeddingDenoiser]) -> None:
    engine = engine_of(denoisers["x0"])
    spec = engine.spec
    for seed in range(20):
        made = request(engine, "a", PROMPTS[0], {}, steps=2, seed=seed, ignore_eos=True)
        ids = run(engine, made)["a"].token_ids
        assert len(ids) == tiny.TARGET_TOKENS
        assert not {spec.mask_id, *spec.forbidden_ids, *spec.end_ids} & set(ids)


def test_text_ends_before_the_end_token(denoisers: dict[str, EmbeddingDenoiser]) -> None:
    engine = engine_of(denoisers["x0"])
    made = request(engine, "a", PROMPTS[0], {3: 2}, steps=3, seed=0, min_tokens=3)
    completion = run(engine, made)["a"]
    assert (completion.finish_reason, len(completion.token_ids)) == ("stop", 3)


class TestStopping:
    def forwards(self, engine: Engine, stop_entropy: float | None, **decoding: Any) -> int:
        decoding = {"steps": 12, "max_tokens": 2, "stop_entropy": stop_entropy} | decoding
        made = request(engine, "a", PROMPTS[0], {}, seed=0, **decoding)
        return run(engine, made)["a"].usage.forwards

    def test_stable_and_sure_tokens_end_it_early(
        self, denoisers: dict[str, EmbeddingDenoiser]
    ) -> None:
        engine = engine_of(denoisers["x0"])
        assert self.forwards(engine, None) == 12
        assert 2 <= self.forwards(engine, 100.0) < 12

    def test_no_one_stops_at_the_first_evaluation_or_while_unsure(
        self, denoisers: dict[str, EmbeddingDenoiser]
    ) -> None:
        engine = engine_of(denoisers["x0"])
        assert all(self.forwards(engine, 100.0, max_tokens=n) >= 2 for n in (1, 2, 3))
        assert self.forwards(engine, 0.0) == 12

    def test_a_lower_bound_never_stops_sooner(
        self, denoisers: dict[str, EmbeddingDenoiser]
    ) -> None:
        engine = engine_of(denoisers["x0"])
        counts = [self.forwards(engine, bound) for bound in (0.001, 0.1, 1.0, 100.0)]
        assert counts == sorted(counts, reverse=True)


def test_the_same_seed_gives_the_same_tokens_and_another_does_not(
    denoisers: dict[str, EmbeddingDenoiser],
) -> None:
    engine = engine_of(denoisers["epsilon"])
    made = [
        request(engine, str(i), PROMPTS[0], {}, steps=4, solver="ddpm", seed=seed)
        for i, seed in enumerate((1, 1, 2))
    ]
    one, same, other = (run(engine, m)[m.request_id].token_ids for m in made)
    assert one == same != other


def test_blocks_commit_from_left_to_right(denoisers: dict[str, EmbeddingDenoiser]) -> None:
    engine = engine_of(denoisers["x0"])
    made = request(
        engine, "a", PROMPTS[0], {}, steps=3, block_length=4, max_tokens=10, seed=0, ignore_eos=True
    )
    completion = run(engine, made)["a"]
    assert (len(completion.token_ids), completion.usage.forwards) == (10, 9)
