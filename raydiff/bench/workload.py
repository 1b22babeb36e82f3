"""What a benchmark runs on: documents of a Parquet file, with their reference summaries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.errors import InputError, invalid
from raydiff.text import DocumentPrompts, Tokenizer, split_into_chunks


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Tokenised documents, shortest prompt first."""

    source: str
    texts: tuple[str, ...]
    """Each document, cut to the model's context."""
    prompts: tuple[tuple[int, ...], ...]
    references: tuple[str, ...]
    """The reference summary of each document; empty where the file has none."""

    def describe(self) -> dict[str, Any]:
        """What a report says of the workload."""
        lengths = [len(prompt) for prompt in self.prompts]
        return {
            "source": self.source,
            "documents": len(lengths),
            "prompt_tokens_mean": fmean(lengths),
            "prompt_tokens_median": median(lengths),
            "prompt_tokens_max": max(lengths),
        }

    def last(self, documents: int) -> Workload:
        """The longest few documents."""
        return Workload(
            source=self.source,
            texts=self.texts[-documents:],
            prompts=self.prompts[-documents:],
            references=self.references[-documents:],
        )


def load_workload(
    path: str | Path, tokenizer: Tokenizer, *, documents: int = 0, text_column: str = "text"
) -> Workload:
    """Read documents spread evenly over the file; 0 takes all. Each is cut to the model's context.

    Raises:
        InputError: the file is no Parquet file, has no such column or no document.
    """
    table = _read(path)
    if text_column not in table.column_names:
        columns = ", ".join(table.column_names)
        raise InputError(invalid("text column", expected=f"one of {columns}", got=text_column))
    picked = _evenly(table.num_rows, documents)
    texts = [text or "" for text in table.column(text_column).take(picked).to_pylist()]
    if not texts:
        raise InputError(f"{path}: expected at least one document.")
    summaries = _summaries(table, picked)
    usual = DocumentPrompts.usual(tokenizer)
    texts = [split_into_chunks(tokenizer, t, usual.max_text_tokens)[0] for t in texts]
    prompts = [usual.cut(text) for text in texts]
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    return Workload(
        source=Path(path).name,
        texts=tuple(texts[i] for i in order),
        prompts=tuple(prompts[i] for i in order),
        references=tuple(summaries[i] for i in order) if summaries else (),
    )


def _read(path: str | Path) -> Any:
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"{path}: expected a readable Parquet file: {error}.") from error


def _summaries(table: Any, picked: list[int]) -> list[str]:
    if "summary" not in table.column_names:
        return []
    return [summary or "" for summary in table.column("summary").take(picked).to_pylist()]


def _evenly(total: int, wanted: int) -> list[int]:
    if wanted == 0 or wanted >= total:
        return list(range(total))
    return [i * total // wanted for i in range(wanted)]
