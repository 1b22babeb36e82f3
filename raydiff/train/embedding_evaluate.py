"""How well a denoiser of embeddings recovers noised targets, and what it writes.

`python -m raydiff.train.embedding_evaluate --model tiny-diffuseq --split test.parquet`. Recovery is
the share of a target's tokens, end token included, whose predicted embedding rounds to them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from raydiff.config import EngineSettings
from raydiff.diffusion.gaussian import clean, level_at
from raydiff.diffusion.rounding import euclidean, nearest
from raydiff.engine import Engine
from raydiff.models.embedding import EmbeddingDenoiser
from raydiff.models.loading import load_denoiser
from raydiff.request import Decoding
from raydiff.train.batches import TokenisedPairs, prompt
from raydiff.train.corpus import evenly, read_split
from raydiff.train.debian import Pair
from raydiff.train.evaluate import distinct, rouge, summarise
from raydiff.train.objective import fill, pad
from raydiff.train.tokenizer import END_ID, PAD_ID

TIMES = (0.25, 0.5, 0.75, 1.0)


def recovery(denoiser: EmbeddingDenoiser, pairs: TokenisedPairs, time: float) -> float:
    """Share of target tokens recovered from noise at `time` (a share of the first time)."""
    spec = denoiser.spec
    documents = [prompt(d, spec.max_prompt_tokens - 2) for d in pairs.documents]
    prompts_BP = torch.from_numpy(pad(documents, PAD_ID))
    live_BP = prompts_BP != PAD_ID
    tokens_BL = torch.from_numpy(np.stack([fill(s, spec.block_length) for s in pairs.summaries]))
    noise_BLE = torch.randn(
        (*tokens_BL.shape, spec.latent_size), generator=torch.Generator().manual_seed(0)
    )
    time_B = torch.full((len(documents),), spec.first_time * time)
    level = level_at(spec.noise_schedule, time_B)
    with torch.inference_mode():
        x_BLE = level.mix(denoiser.embed(tokens_BL).float(), noise_BLE)
        encoded = denoiser.encode_prompt(prompts_BP, live_BP)
        seen_BL = torch.ones_like(tokens_BL, dtype=torch.bool)
        predicted = denoiser.predict(x_BLE, time_B, seen_BL, encoded, live_BP).float()
        x0_BLE = clean(spec.prediction, predicted, x_BLE, level)
        rounded = nearest(euclidean(x0_BLE.flatten(0, 1), denoiser.table().float()))
    ends_BL = tokens_BL == END_ID
    content_BL = ends_BL.cumsum(dim=1) - ends_BL.long() == 0
    return float((rounded.view_as(tokens_BL) == tokens_BL)[content_BL].float().mean())


def evaluate(model: str | Path, pairs: Sequence[Pair], decoding: Decoding) -> dict[str, float]:
    """Recovery at `TIMES` and ROUGE of what is written (references in lower case, as our tiny
    checkpoints write)."""
    denoiser = load_denoiser(model, device="cpu", dtype="fp32")
    assert isinstance(denoiser, EmbeddingDenoiser)
    engine = Engine.load(model, dtype="fp32", settings=EngineSettings(threads=1))
    texts = [pair.text for pair in pairs]
    encoded = engine.tokenizer.encode_batch([*texts, *(pair.summary for pair in pairs)])
    rows = [np.array(ids, dtype=np.int64) for ids in encoded]
    tokens = TokenisedPairs(
        documents=rows[: len(texts)], summaries=rows[len(texts) :], groups=np.arange(len(texts))
    )
    report = {f"recovery_{time:g}": recovery(denoiser, tokens, time) for time in TIMES}
    completions = summarise(engine, texts, decoding)
    scores = rouge(
        [done.text.strip() for done in completions], [pair.summary.lower() for pair in pairs]
    )
    words = [len(done.text.split()) for done in completions]
    forwards = [done.usage.forwards for done in completions]
    return report | scores | {"words": float(np.mean(words)), "forwards": float(np.mean(forwards))}


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m raydiff.train.embedding_evaluate")
    parser.add_argument("--model", required=True)
    parser.add_argument("--split", type=Path, required=True, help="Parquet of text and summary")
    parser.add_argument("--rows", type=int, default=200, help="so many documents, evenly spaced")
    parser.add_argument("--decoding", type=json.loads, default={}, help="settings, as JSON")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    pairs = evenly(distinct(read_split(options.split)), options.rows)
    decoding = Decoding.from_mapping({"seed": 0, **options.decoding})
    report = evaluate(options.model, pairs, decoding)
    print(json.dumps({name: round(value, 4) for name, value in report.items()}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
