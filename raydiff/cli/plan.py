"""`raydiff plan`: what a corpus will take, from its footers and a sample of its documents."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args

from raydiff.cli.corpus_flags import add_input_arguments, input_settings
from raydiff.cli.decoding import decoding_from
from raydiff.config import Dtype, TaskSettings, usable_cores

if TYPE_CHECKING:
    from raydiff.bench.capacity.capacity import Question

_NAMES = {
    "requests": "requests (chunks and merges too)",
    "prompt_tokens": "prompt tokens",
    "output_tokens": "output tokens",
    "forwards": "forwards of rows",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "plan",
        help="estimate tokens, hours and cost of a corpus",
        description="Estimate documents, tokens, forwards, hours and cost of a corpus from its "
        "footers and a sample, and advise a shard size and replicas. The speed of a replica is "
        "measured here unless --benchmark or --accelerator tells it.",
    )
    add_input_arguments(parser)
    parser.add_argument(
        "--task",
        choices=("summarize", "rewrite", "label"),
        default="summarize",
        help="what is to be done with the documents (summarize)",
    )
    parser.add_argument("--labels", metavar="A,B,...", help="to choose from, for --task label")
    _add_estimate(parser.add_argument_group("estimate"))
    _add_speed(parser.add_argument_group("speed of a replica"))


def _add_estimate(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--replicas", type=int, metavar="N", help="replicas to plan with (advised, or 1)")
    add("--price-per-hour", type=float, metavar="P", help="of one replica, in any currency")
    add("--within-hours", type=float, metavar="H", help="advise replicas for this deadline")
    add("--sample", type=int, default=400, metavar="N", help="documents that are read (400)")
    add("--compare", metavar="RUN", help="directory of a finished run: how far off is this?")


def _add_speed(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--benchmark", metavar="FILE", help="report of raydiff bench engine or shapes, as JSON")
    add("--accelerator", metavar="NAME", help="work it out from a data sheet (h100, l4, ...)")
    add("--batch", type=int, default=64, metavar="N", help="rows of a forward on it (64)")
    add(
        "--tokens-per-forward",
        type=float,
        metavar="X",
        help="of each row, on it (by the steps, or 1)",
    )
    add("--dtype", default="bf16", choices=get_args(Dtype), help="of the weights, on it (bf16)")
    add("--measured", type=int, default=128, metavar="N", help="documents to measure with (128)")
    add("--threads", type=int, metavar="N", help="CPU threads to measure with (a replica's)")
    add(
        "--efficiency",
        type=float,
        default=0.85,
        metavar="X",
        help="documents/s of a job over the bare engine's (0.85)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the estimate, and how far it is from a run."""
    from raydiff.bench.capacity.capacity import estimate_capacity
    from raydiff.bench.capacity.comparison import compare, read_run

    question = question_from(args)
    done = read_run(args.compare, question.corpus.storage) if args.compare else None
    if done is not None and question.replicas is None:
        ran_with = done["settings"].get("replicas") or _usual_replicas()
        question = question.with_replicas(ran_with)
    report = estimate_capacity(question)
    if done is not None:
        report["comparison"] = compare(report, done)
    print(json.dumps(report) if args.json else "\n".join(_lines(report)))
    return 0


def question_from(args: argparse.Namespace) -> Question:
    """What the flags ask."""
    from raydiff.bench.capacity.capacity import Question

    threads = max(1, (usable_cores() - 1) // _usual_replicas())
    labels = tuple(label.strip() for label in (args.labels or "").split(",") if label.strip())
    task = TaskSettings(kind=args.task, labels=labels)
    return Question(
        corpus=input_settings(args, task),
        decoding=decoding_from(args),
        sample=args.sample,
        measured=args.measured,
        replicas=args.replicas,
        price_per_hour=args.price_per_hour,
        within_hours=args.within_hours,
        benchmark=args.benchmark,
        accelerator=args.accelerator,
        batch=args.batch,
        tokens_per_forward=args.tokens_per_forward,
        dtype=args.dtype,
        threads=threads if args.threads is None else args.threads,
        efficiency=args.efficiency,
    )


def _usual_replicas() -> int:
    """Replicas that a job starts when it is not told."""
    return max(1, usable_cores() // 2)


def _lines(report: dict[str, Any]) -> Iterator[str]:
    from raydiff.bench.report import table

    speed, advice = report["speed"], report["advice"]
    yield (
        f"{report['documents']:,} documents in {report['files']:,} files "
        f"({report['size_bytes'] / 1e6:,.3g} MB); {report['sample']:,} of them read"
    )
    if report["not_text"]:
        yield f"about {report['not_text']:,.0f} are null, empty or no text"
    yield ""
    yield table(list(_rows(report)), ["", "estimate", "low", "high"])
    yield ""
    yield (
        f"one replica  {speed['documents_per_s']:,.2f} documents/s, "
        f"{speed['output_tokens_per_s']:,.0f} output tokens/s"
    )
    yield f"source       {speed['source']}"
    yield f"assumed      the job is {speed['efficiency']:g} times as fast as the bare engine"
    yield from (f"             {assumption}" for assumption in speed["assumptions"])
    yield (
        f"advice       --shard-rows {advice['shard_rows']} ({advice['why']}): "
        f"{advice['shards']:,} shards"
    )
    if advice["replicas"]:
        yield (
            f"             --replicas {advice['replicas']} to be done within "
            f"{advice['within_hours']:g} hours, at the high end"
        )
    if "comparison" in report:
        yield from _comparison(report["comparison"])


def _rows(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, title in _NAMES.items():
        yield _row(title, report["estimates"][name], ",.0f")
    replicas = report["replicas"]
    yield _row(f"hours with {replicas} replica{'s' * (replicas > 1)}", report["hours"], ",.3g")
    if report["cost"]:
        yield _row("cost", report["cost"], ",.2f")


def _row(title: str, found: dict[str, float], shown: str) -> dict[str, Any]:
    return {
        "": title,
        **{
            key: format(found[name], shown)
            for key, name in (("estimate", "value"), ("low", "low"), ("high", "high"))
        },
    }


def _comparison(found: dict[str, Any]) -> Iterator[str]:
    from raydiff.bench.report import table

    rows = [
        {
            "": row["what"],
            "estimate": f"{row['estimate']:,.0f}",
            "run": "-" if row["run"] is None else f"{row['run']:,.0f}",
            "error": "-" if row["error"] is None else f"{row['error']:+.1%}",
        }
        for row in found["rows"]
    ]
    yield ""
    yield table(rows, ["", "estimate", "run", "error"])
    yield from (f"note: {note}" for note in found["notes"])
