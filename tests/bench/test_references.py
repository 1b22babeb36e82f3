"""The plain reference obeys the engine's rules."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from raydiff.bench.references import Recompute
from raydiff.config import EngineSettings
from raydiff.engine import Engine
from raydiff.request import Decoding

DOCUMENTS = (
    "A small library to read files.",
    "Tools for the web, with many files of data: read and write them.",
    "x",
    "Write data with a library " * 9,
)


END_RULES = {
    "plain": {"drop_after_end": False},
    "all": {"drop_after_end": True, "end_threshold": 0.5, "end_bias": 1.0},
}


@pytest.fixture(scope="module", params=END_RULES.values(), ids=END_RULES.keys())
def checkpoint(
    request: pytest.FixtureRequest, tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The tiny model, without and with every rule about ends."""
    folder = tmp_path_factory.mktemp("reference") / "model"
    shutil.copytree(tiny_checkpoint, folder)
    config = json.loads((folder / "config.json").read_text())
    config["raydiff"].update(request.param)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def engine(checkpoint: Path) -> Engine:
    return Engine.load(checkpoint, device="cpu", dtype="fp32", settings=EngineSettings(threads=1))


@pytest.fixture(scope="module")
def recompute(checkpoint: Path) -> Recompute:
    return Recompute(str(checkpoint), device=torch.device("cpu"), dtype=torch.float32)


@pytest.mark.parametrize(
    "decoding",
    [
        Decoding(steps=16),
        Decoding(steps=5),
        Decoding(threshold=0.3),
        Decoding(threshold=0.0),
        Decoding(steps=8, max_tokens=50),
        Decoding(steps=4, max_tokens=29, block_length=8),
    ],
    ids=lambda d: f"{d.policy or ''}{d.steps}-{d.threshold}-{d.max_tokens}-{d.block_length}",
)
def test_recomputing_everything_writes_the_engines_tokens(
    engine: Engine, recompute: Recompute, decoding: Decoding
) -> None:
    prompts = [engine.tokenizer.prompt_ids(text) for text in DOCUMENTS]
    completions = engine.generate(prompts, decoding)
    assert recompute.generate(prompts, decoding) == [c.token_ids for c in completions]
    assert len({c.token_ids for c in completions}) > 1, "the test model tells documents apart"


def test_a_batch_takes_as_many_forwards_as_its_slowest_row(
    engine: Engine, recompute: Recompute
) -> None:
    prompts = [engine.tokenizer.prompt_ids(text) for text in DOCUMENTS]
    completions = engine.generate(prompts, Decoding(steps=16))
    before = recompute.forwards
    recompute.generate(prompts, Decoding(steps=16))
    assert recompute.forwards - before == max(c.usage.forwards for c in completions)
