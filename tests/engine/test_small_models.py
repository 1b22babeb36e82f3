"""The small trained models, each with every decoder that undoes its noise, in fp32."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from raydiff.bench.quality import rouge
from raydiff.engine import Engine
from raydiff.families import model_path
from raydiff.models.bert import BertDenoiser
from raydiff.models.denoiser import Denoiser
from raydiff.models.loading import load_denoiser
from raydiff.request import Completion, Decoding
from raydiff.text import Tokenizer

SAMPLE = Path(__file__).parents[2] / "jobs" / "sample.parquet"
ABSORBING = (
    Decoding(policy="flow", steps=8, seed=1),
    Decoding(policy="ancestral", steps=12, temperature=0.7, seed=2),
    Decoding(policy="first_hitting", seed=2),
    Decoding(policy="remask", remask="cap", steps=12, seed=3),
    Decoding(policy="remask", remask="loop", steps=12, temperature=0.5, seed=4),
    Decoding(policy="quota", steps=6),
    Decoding(policy="quota", steps=6, score="entropy", schedule="timestep", block_length=8),
    Decoding(policy="threshold", threshold=0.6),
    Decoding(policy="factor", factor=1.0),
    Decoding(policy="hierarchical"),
    Decoding(policy="credit", threshold=0.7),
    Decoding(policy="edit", threshold=0.7),
    Decoding(policy="entropy_bound", entropy_bound=0.5),
    Decoding(policy="quota", steps=6, guidance=0.5),
)
UNIFORM = (
    Decoding(policy="entropy_bound", entropy_bound=0.5, steps=16, seed=1),
    Decoding(policy="ancestral", steps=12, temperature=0.7, seed=2),
    Decoding(policy="flow", steps=12, seed=3),
    Decoding(policy="flow", steps=16, stop_entropy=1.0, seed=4),
)
MODELS = {"tiny-uniform": UNIFORM, "tiny-discrete-flow": ABSORBING, "tiny-masked": ABSORBING}
CASES = [
    pytest.param(name, decoding, id=f"{name}-{number}-{decoding.policy}")
    for name, decodings in MODELS.items()
    for number, decoding in enumerate(decodings)
]


@cache
def loaded(name: str) -> Denoiser:
    torch.set_num_threads(1)
    return load_denoiser(name, device="cpu", dtype="fp32")


def engine_of(name: str) -> Engine:
    return Engine(loaded(name), Tokenizer.load(name))


def documents(count: int) -> tuple[list[str], list[str]]:
    """Test documents, evenly spaced, and their synopses."""
    table = pq.read_table(SAMPLE, columns=["text", "summary"])
    rows = range(0, table.num_rows, table.num_rows // count)[:count]
    return table["text"].take(list(rows)).to_pylist(), table["summary"].take(list(rows)).to_pylist()


def generate(engine: Engine, texts: list[str], decoding: Decoding) -> list[Completion]:
    room = engine.tokenizer.max_text_tokens
    ids = [row[:room] for row in engine.tokenizer.encode_batch(texts)]
    return engine.generate([engine.tokenizer.wrap(row) for row in ids], decoding)


@pytest.mark.parametrize(("name", "decoding"), CASES)
def test_a_text_is_the_same_alone_and_in_a_batch(name: str, decoding: Decoding) -> None:
    texts, _ = documents(5)
    engine = engine_of(name)
    batched = generate(engine, [*texts, "short"], decoding)
    for text, completion in zip(texts[:2], batched, strict=False):
        (alone,) = generate(engine_of(name), [text], decoding)
        assert alone.token_ids == completion.token_ids
        assert alone.usage == completion.usage


@pytest.mark.parametrize(("name", "decoding"), CASES)
def test_a_decoder_writes_text_and_no_special_token_within_its_steps(
    name: str, decoding: Decoding
) -> None:
    texts, _ = documents(4)
    spec = loaded(name).spec
    assert spec.resolve(decoding).policy == decoding.policy
    completions = generate(engine_of(name), texts, decoding)
    assert any(completion.text for completion in completions)
    for completion in completions:
        assert spec.mask_id not in completion.token_ids
        assert not set(completion.token_ids) & set(spec.end_ids)
        assert 1 <= completion.usage.forwards <= 2 * spec.block_length + 1


@pytest.mark.parametrize("name", MODELS)
def test_another_seed_samples_another_text(name: str) -> None:
    texts, _ = documents(4)
    first, again, other = (
        [
            c.token_ids
            for c in generate(
                engine_of(name),
                texts,
                Decoding(policy="ancestral", steps=8, temperature=1.0, seed=seed),
            )
        ]
        for seed in (5, 5, 6)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("name", MODELS)
def test_training_shows_on_documents_it_has_not_seen(name: str) -> None:
    """Beside the same network untrained, with the model's own decoding."""
    texts, references = documents(40)
    trained = [c.text for c in generate(engine_of(name), texts, Decoding(seed=0))]
    torch.manual_seed(0)
    config = BertConfig.from_pretrained(str(model_path(name)))
    model = BertForMaskedLM(config).eval().requires_grad_(False)
    engine = Engine(BertDenoiser(model, loaded(name).spec), Tokenizer.load(name))
    untrained = [c.text for c in generate(engine, texts, Decoding(seed=0))]
    assert rouge(trained, references)["rougeL"] > rouge(untrained, references)["rougeL"] + 4


def test_uniform_noise_stops_once_the_best_text_is_stable_and_sure() -> None:
    texts, _ = documents(8)
    engine = engine_of("tiny-uniform")
    steps = 24

    def forwards(stop: float) -> list[int]:
        decoding = Decoding(
            policy="entropy_bound", entropy_bound=10.0, steps=steps, stop_entropy=stop, seed=0
        )
        return [c.usage.forwards for c in generate(engine, texts, decoding)]

    eager, never = forwards(5.0), forwards(0.0)
    assert set(never) == {steps}
    assert max(eager) < steps


@pytest.mark.parametrize("cache_mode", ["prefix", "dual"])
def test_an_approximate_cache_refreshed_at_every_step_is_exact(cache_mode: str) -> None:
    texts, _ = documents(6)
    engine = engine_of("tiny-masked")
    common = {"policy": "quota", "steps": 8, "block_length": 8}
    exact = generate(engine, texts, Decoding.from_mapping(common))
    fresh = generate(
        engine, texts, Decoding.from_mapping({**common, "cache": cache_mode, "refresh_steps": 1})
    )
    assert [c.token_ids for c in fresh] == [c.token_ids for c in exact]


@pytest.mark.parametrize("name", ["tiny-uniform", "tiny-discrete-flow"])
def test_a_model_that_encodes_its_prompt_once_takes_no_approximate_cache(name: str) -> None:
    spec = loaded(name).spec
    assert spec.cache == "exact"
    assert loaded("tiny-masked").spec.cache == "none"
