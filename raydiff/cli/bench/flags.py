"""What benchmarks' flags and endings have in common."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any, get_args

from raydiff.config import Dtype
from raydiff.errors import UsageError, invalid

SAMPLE = "jobs/sample.parquet"


def common(parser: argparse.ArgumentParser, documents: int) -> None:
    """Flags of benchmarks over documents; `documents` is how many they usually take."""
    parser.add_argument(
        "--input", default=SAMPLE, metavar="FILE", help=f"Parquet of documents ({SAMPLE})"
    )
    parser.add_argument(
        "--model", default="summarizer", help="bundled name, checkpoint directory or random:PRESET"
    )
    parser.add_argument("--dtype", default="bf16", choices=get_args(Dtype), help="of the weights")
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="engine threads (usable cores)"
    )
    parser.add_argument(
        "--documents",
        type=int,
        default=documents,
        metavar="N",
        help=f"documents, spread over the input; 0 takes all ({documents})",
    )
    json_flag(parser)


def json_flag(parser: argparse.ArgumentParser) -> None:
    """Where the report goes."""
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write the report to this file; without a file print it last",
    )


def numbers(kind: type) -> Any:
    """Parses values with commas between them."""

    def parse(text: str) -> tuple[Any, ...]:
        return tuple(kind(part) for part in text.split(","))

    parse.__name__ = f"comma-separated {kind.__name__}"
    return parse


def at_least_one(name: str, value: float) -> None:
    """Refuse a flag's value below 1.

    Raises:
        UsageError: it is.
    """
    if value < 1:
        raise UsageError(invalid(name, expected="an integer of at least 1", got=value), name)


def finish(args: argparse.Namespace, report: Mapping[str, Any], **tables: list[str]) -> int:
    """Print the named parts of the report as tables; write all of it where asked."""
    from raydiff.bench.report import table, write_report

    for part, columns in tables.items():
        rows = report[part] if isinstance(report[part], list) else [report[part]]
        print(f"\n{table(rows, columns)}")
    for key in ("ratio", "note"):
        if key in report:
            print(f"\n{key}: {json.dumps(report[key])}")
    if args.json == "-":
        print(json.dumps(report))
    elif args.json:
        write_report(report, args.json)
    return 0
