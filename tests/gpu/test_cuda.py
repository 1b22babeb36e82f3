"""On a GPU (`-m gpu`): the tokens that the CPU gives, and the figures that only a GPU has."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from raydiff.bench.shapes import ShapesBench, run_shapes_bench
from raydiff.config import EngineSettings
from raydiff.decoding import Decoding
from raydiff.engine import Engine
from tests.families.tiny import BY_NAME, MASK, TINY

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]

DECODING = Decoding(max_tokens=11, temperature=0.0, ignore_eos=True)


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    beginning = torch.randint(0, MASK, (33,), generator=generator).tolist()
    ends = [torch.randint(0, MASK, (n,), generator=generator).tolist() for n in (3, 8, 13)]
    return [[*beginning, *end] for end in ends]


def texts(folder: Path, device: str, **settings: int) -> list[tuple[int, ...]]:
    engine = Engine.load(folder, device=device, dtype="fp32", settings=EngineSettings(**settings))
    # twice: the second time prompts begin as earlier ones did
    return [c.token_ids for _ in range(2) for c in engine.generate(prompts(), DECODING)]


@pytest.mark.parametrize("name", [tiny.name for tiny in TINY])
def test_a_text_in_fp32_is_that_of_the_cpu(name: str, tmp_path: Path) -> None:
    folder = BY_NAME[name].save(tmp_path)
    assert texts(folder, "cuda") == texts(folder, "cpu", prefix_cache_bytes=0)


def test_the_bundled_model_gives_the_texts_of_the_cpu() -> None:
    documents = ["A library to read and write files of data.", "Tools for the web, small and fast."]
    decoding = Decoding(max_tokens=16, temperature=0.0)
    on = {
        device: Engine.load(device=device, dtype="fp32").generate(documents, decoding)
        for device in ("cuda", "cpu")
    }
    assert [c.text for c in on["cuda"]] == [c.text for c in on["cpu"]]


def test_shapes_are_measured_with_their_memory() -> None:
    bench = ShapesBench(models=("random:tiny-llada",), batches=(1, 8), device="cuda")
    for point in run_shapes_bench(bench)["points"]:
        assert point["complete"]
        assert point["peak_memory_bytes"] >= point["weights_bytes"] > 0
