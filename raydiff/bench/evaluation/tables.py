"""The findings of an evaluation as Parquet: a row for each document and setting, and for each
setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.bench.evaluation.generation import Outcome
from raydiff.bench.evaluation.redaction import Redaction
from raydiff.bench.evaluation.scores import METRICS, Scores
from raydiff.bench.evaluation.summary import Scored
from raydiff.bench.sample import Document

_SCORE_FIELDS: list[pa.Field[Any]] = [
    pa.field("setting", pa.string(), nullable=False),
    pa.field("source_file", pa.string(), nullable=False),
    pa.field("source_row", pa.int64(), nullable=False),
    pa.field("error_type", pa.string()),
    pa.field("completion_tokens", pa.int64(), nullable=False),
    pa.field("forwards", pa.int64(), nullable=False),
    *(pa.field(name, pa.float64()) for name in METRICS),
]
_TEXTS = ("document", "text", "reference")

_VERDICT = ("quality", "quality_low", "quality_high", "loss", "loss_bound")
_SUMMARY_FIELDS: list[pa.Field[Any]] = [
    pa.field("setting", pa.string(), nullable=False),
    *(pa.field(name, pa.int64()) for name in ("documents", "failed", "output_tokens")),
    *(pa.field(name, pa.float64()) for name in ("tokens_per_forward", "output_tokens_per_s")),
    *(pa.field(name, pa.float64()) for name in ("documents_per_s", *_VERDICT)),
    *(pa.field(name, pa.bool_()) for name in ("within", "on_front")),
    *(
        pa.field(f"{metric}{end}", pa.float64())
        for metric in METRICS
        for end in ("", "_low", "_high")
    ),
]
_SUMMARY = pa.schema(_SUMMARY_FIELDS)


def scores_table(
    documents: Sequence[Document], scored: Sequence[Scored], texts: Redaction | None
) -> pa.Table:
    """Scores of each document under each setting; with texts only if there is a redaction for
    them, which they go through."""
    rows = [
        {
            "setting": one.name,
            "source_file": document.file,
            "source_row": document.row,
            "error_type": outcome.error_type,
            "completion_tokens": outcome.totals.completion_tokens,
            "forwards": outcome.totals.forwards,
            **(scores or {}),
            **(_texts(document, outcome, texts) if texts else {}),
        }
        for one in scored
        for document, outcome, scores in _of(one, documents)
    ]
    fields = [*_SCORE_FIELDS]
    fields += [pa.field(name, pa.string()) for name in _TEXTS] if texts else []
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


def _of(one: Scored, documents: Sequence[Document]) -> zip[tuple[Document, Outcome, Scores | None]]:
    return zip(documents, one.measured.outcomes, one.scores, strict=True)


def _texts(document: Document, outcome: Outcome, redact: Redaction) -> dict[str, str | None]:
    held = (str(document.text), outcome.text, document.reference)
    return {
        name: None if text is None else redact(text)
        for name, text in zip(_TEXTS, held, strict=True)
    }


def summary_table(settings: Sequence[dict[str, Any]]) -> pa.Table:
    """One row a setting: speed, verdict, and of each metric the mean with its interval."""
    return pa.Table.from_pylist([_flat(setting) for setting in settings], schema=_SUMMARY)


def _flat(setting: dict[str, Any]) -> dict[str, Any]:
    row = {"setting": setting["name"], **{k: v for k, v in setting.items() if k in _SUMMARY.names}}
    for metric, found in setting["metrics"].items():
        if found is not None:
            row |= {
                metric: found["mean"],
                f"{metric}_low": found["low"],
                f"{metric}_high": found["high"],
            }
    return row


def parquet(table: pa.Table) -> bytes:
    """The content of a Parquet file."""
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer)
    content: bytes = buffer.getvalue().to_pybytes()
    return content
