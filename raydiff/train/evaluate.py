"""ROUGE of a model on a Parquet split, beside extraction baselines.

`python -m raydiff.train.evaluate --split test.parquet` decodes with the engine. ROUGE-1, ROUGE-2
and ROUGE-L F1 are `rouge-score`'s, in percent, mean over documents, without stemming unless asked.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections.abc import Sequence
from pathlib import Path

from rouge_score.rouge_scorer import RougeScorer

from raydiff.config import EngineSettings
from raydiff.engine import Engine
from raydiff.request import Completion, Decoding
from raydiff.train.corpus import evenly, read_split
from raydiff.train.debian import Pair, beginning

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


def distinct(pairs: Sequence[Pair]) -> list[Pair]:
    """The first document of each beginning, so that families of near-twins count once."""
    firsts: dict[str, Pair] = {}
    for pair in pairs:
        firsts.setdefault(beginning(pair.text), pair)
    return list(firsts.values())


def summarise(engine: Engine, texts: Sequence[str], decoding: Decoding) -> list[Completion]:
    """One completion per text, in order; a text beyond the model's context is cut."""
    spec, tokenizer = engine.spec, engine.tokenizer
    room = spec.max_prompt_tokens - len(spec.prompt_prefix_ids) - len(spec.prompt_suffix_ids)
    prompts = [tokenizer.wrap(ids[:room]) for ids in tokenizer.encode_batch(texts)]
    # Like lengths together: the engine admits in order and pads to the longest of a forward.
    order = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))
    completions = engine.generate([prompts[row] for row in order], decoding)
    return [done for _, done in sorted(zip(order, completions, strict=True), key=lambda x: x[0])]


def main(argv: Sequence[str] | None = None) -> int:
    """Prints some summaries when asked to, then one JSON object of scores."""
    options = _parser().parse_args(argv)
    pairs = read_split(options.split)
    pairs = distinct(pairs) if options.distinct else pairs
    pairs = evenly(pairs, options.rows) if options.rows else pairs
    texts, references = [p.text for p in pairs], [p.summary for p in pairs]
    settings = EngineSettings(threads=options.threads)
    engine = Engine.load(options.model, dtype=options.dtype, settings=settings)
    decoding = Decoding(
        steps=options.steps, threshold=options.threshold, block_length=options.block_length
    )
    started = time.monotonic()
    completions = summarise(engine, texts, decoding)
    seconds = time.monotonic() - started
    summaries = [completion.text.strip() for completion in completions]
    for row in random.Random(0).sample(range(len(pairs)), options.show):
        pair, summary = pairs[row], summaries[row]
        print(f"{pair.doc_id}: {first_words(pair.text, 30)}")
        print(f"  reference: {pair.summary}\n  model: {summary}")
    report = {
        "documents": len(pairs),
        "distinct": options.distinct,
        "stem": options.stem,
        "end_bias": engine.spec.end_bias,
        "steps": options.steps,
        "threshold": options.threshold,
        "forwards_per_document": _mean([done.usage.forwards for done in completions]),
        "seconds": round(seconds, 1),
        "words": _mean([len(summary.split()) for summary in summaries]),
        "reference_words": _mean([len(reference.split()) for reference in references]),
        "model": _rounded(rouge(summaries, references, options.stem)),
        "baselines": {
            name: _rounded(rouge(extracts, references, options.stem))
            for name, extracts in baselines(texts).items()
        },
    }
    print(json.dumps(report))
    return 0


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / max(len(values), 1), 2)


def _rounded(scores: dict[str, float]) -> dict[str, float]:
    return {kind: round(score, 2) for kind, score in scores.items()}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m raydiff.train.evaluate")
    add = parser.add_argument
    add("--model", default="summarizer")
    add("--split", type=Path, required=True, help="Parquet file with text and summary")
    add("--rows", type=int, default=0, help="only so many documents, evenly spaced")
    add("--distinct", action="store_true", help="one document per beginning: no near-twins")
    add("--steps", type=int, default=None, help="default: the model's own")
    add("--threshold", type=float, default=None)
    add("--block-length", type=int, default=None)
    add("--dtype", default="auto")
    add("--threads", type=int, default=1)
    add("--stem", action="store_true")
    add("--show", type=int, default=0, help="print so many random documents with their summaries")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
