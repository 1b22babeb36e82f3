"""ROUGE of a model on a Parquet split, beside extraction baselines; `python -m
raydiff.train.evaluate`.

ROUGE-1, ROUGE-2 and ROUGE-L F1 are `rouge-score`'s, in percent, mean over documents, without
stemming unless asked.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rouge_score.rouge_scorer import RougeScorer
from tokenizers import Tokenizer

from raydiff.models.denoiser import Denoiser
from raydiff.models.loading import load_denoiser
from raydiff.spec import model_path
from raydiff.train.corpus import evenly, read_split
from raydiff.train.debian import Pair
from raydiff.train.decode import ReferenceDecoding, decode

KINDS = ("rouge1", "rouge2", "rougeL")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")


def rouge(
    predictions: Sequence[str], references: Sequence[str], stem: bool = False
) -> dict[str, float]:
    """Mean F1 in percent by kind."""
    scorer = RougeScorer(KINDS, use_stemmer=stem)
    scores = [scorer.score(r, p) for r, p in zip(references, predictions, strict=True)]
    return {kind: 100 * sum(s[kind].fmeasure for s in scores) / len(scores) for kind in KINDS}


def first_sentence(text: str) -> str:
    """A text up to its first sentence's or line's end."""
    return _SENTENCE_END.split(text, maxsplit=1)[0]


def first_words(text: str, count: int = 12) -> str:
    """A text's first words."""
    return " ".join(text.split()[:count])


def baselines(texts: Sequence[str]) -> dict[str, list[str]]:
    """What extraction without a model gives, by name."""
    return {
        "first sentence cut at 12 words": [first_words(first_sentence(text)) for text in texts],
        "first 12 words": [first_words(text) for text in texts],
        "first sentence": [first_sentence(text) for text in texts],
    }


def summarise(
    denoiser: Denoiser,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    how: ReferenceDecoding,
    batch_rows: int = 64,
) -> list[str]:
    """One summary per text, by the reference decoder; long texts are cut at the model's context."""
    spec = denoiser.spec
    tokenizer.encode_special_tokens = True
    room = spec.max_prompt_tokens - len(spec.prompt_prefix_ids) - len(spec.prompt_suffix_ids)
    prompts = [
        [*spec.prompt_prefix_ids, *encoding.ids[:room], *spec.prompt_suffix_ids]
        for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)
    ]
    order = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))
    summaries = [""] * len(prompts)
    for start in range(0, len(order), batch_rows):
        rows = order[start : start + batch_rows]
        for row, tokens in zip(
            rows, decode(denoiser, [prompts[r] for r in rows], how), strict=True
        ):
            summaries[row] = tokenizer.decode(tokens).strip()
    return summaries


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one JSON object: scores of the model and of the baselines."""
    options = _parser().parse_args(argv)
    torch.set_num_threads(options.threads)
    pairs: list[Pair] = read_split(options.split)
    if options.rows:
        pairs = evenly(pairs, options.rows)
    texts, references = [p.text for p in pairs], [p.summary for p in pairs]
    denoiser = load_denoiser(options.model, "cpu", options.dtype)
    tokenizer = Tokenizer.from_file(str(model_path(options.model) / "tokenizer.json"))
    bias = denoiser.spec.end_bias if options.end_bias is None else options.end_bias
    how = ReferenceDecoding(steps=options.steps, block_length=options.block_length, end_bias=bias)
    started = time.monotonic()
    summaries = summarise(denoiser, tokenizer, texts, how)
    seconds = time.monotonic() - started
    report = {
        "documents": len(pairs),
        "decoding": vars(how),
        "seconds": round(seconds, 1),
        "words": sum(len(s.split()) for s in summaries) / len(summaries),
        "reference_words": sum(len(r.split()) for r in references) / len(references),
        "model": rouge(summaries, references, options.stem),
        "baselines": {n: rouge(p, references, options.stem) for n, p in baselines(texts).items()},
    }
    for pair, summary in list(zip(pairs, summaries, strict=True))[: options.show]:
        print(f"{pair.doc_id}: {first_words(pair.text, 30)}")
        print(f"  reference: {pair.summary}\n  model: {summary}")
    print(json.dumps(report))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m raydiff.train.evaluate")
    add = parser.add_argument
    add("--model", default="summarizer")
    add("--split", type=Path, required=True, help="Parquet file with text and summary")
    add("--rows", type=int, default=0, help="only so many documents, evenly spaced")
    add("--steps", type=int, default=16)
    add("--block-length", type=int, default=32)
    add("--end-bias", type=float, default=None, help="default: the model's own")
    add("--dtype", default="auto")
    add("--threads", type=int, default=1)
    add("--stem", action="store_true")
    add("--show", type=int, default=0, help="print so many documents with their summaries")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
