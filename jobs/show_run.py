"""Shows what a corpus run wrote: some documents with their summaries, speed, metrics.

python jobs/show_run.py OUTPUT --input INPUT.parquet [--metrics-url URL]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from raydiff.bench.report import table
from raydiff.bench.scrape import Scrape, scrape_until
from raydiff.metrics import DOCUMENTS, FORWARD_ROWS, FORWARDS, OUTPUT_TOKENS, SHARDS

DOCUMENT_WIDTH = 48
SUMMARY_WIDTH = 64


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("output", type=Path, help="directory of a finished run")
    parser.add_argument("--input", type=Path, required=True, help="the Parquet file it summarised")
    parser.add_argument("--text-column", default="text")
    parser.add_argument("--documents", type=int, default=10, help="documents to show (10)")
    parser.add_argument("--metrics-url", help="scrape these metrics of Ray's exporter too")
    args = parser.parse_args()
    report = json.loads((args.output / "_run.json").read_text(encoding="utf-8"))
    print(table(documents(args), ["document", "begins", "summary"]))
    print()
    for name, value in figures(report):
        print(f"{name:<22}{value}")
    print(f"{'output':<22}{args.output}")
    if args.metrics_url:
        print(f"{'metrics':<22}{args.metrics_url}")
        for name, total in metrics(args.metrics_url, report["session"]["documents"]):
            print(f"  {name:<44}{total:,.1f}")
    return 0


def documents(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Documents spread evenly over the run, each with its beginning and its summary."""
    rows = pq.read_table(sorted(args.output.glob("part-*.parquet"))).sort_by("source_row")
    wanted = min(args.documents, rows.num_rows)
    rows = rows.take([i * rows.num_rows // wanted for i in range(wanted)])
    texts = pq.read_table(args.input, columns=[args.text_column]).column(0)
    begins = pc.take(texts, rows["source_row"])
    shown = zip(rows.column(0), begins, rows["summary"], strict=True)
    return [
        {
            "document": str(document),
            "begins": shorten(begin.as_py() or "", DOCUMENT_WIDTH, placeholder="…"),
            "summary": shorten(summary.as_py(), SUMMARY_WIDTH, placeholder="…"),
        }
        for document, begin, summary in shown
    ]


def figures(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The run's own account of itself."""
    session = report["session"]
    yield (
        "documents",
        f"{report['rows']} ({report['summarized']} summarised, {report['failed']} failed)",
    )
    yield "output tokens", f"{report['output_tokens']:,}"
    yield "tokens per forward", f"{report['tokens_per_forward']:.2f}"
    if session["documents"]:
        yield "documents/s", f"{session['documents_per_s']:.1f}"
        yield "output tokens/s", f"{session['output_tokens_per_s']:.0f}"


def metrics(url: str, documents_done: int) -> Iterator[tuple[str, float]]:
    """A few of raydiff's metrics, from a scrape made once they account for the documents."""

    def complete(found: Scrape) -> bool:
        return found.total(DOCUMENTS.ray_name) >= documents_done

    found = scrape_until(url, complete)
    for metric in (DOCUMENTS, SHARDS, OUTPUT_TOKENS, FORWARDS):
        yield metric.ray_name, found.total(metric.ray_name)
    forwards = found.total(FORWARDS.ray_name, kind="denoise")
    if forwards:
        rows = found.total(FORWARD_ROWS.ray_name, kind="denoise")
        yield "rows per denoising forward", rows / forwards


if __name__ == "__main__":
    raise SystemExit(main())
