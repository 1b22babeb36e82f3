"""`raydiff bench`: measurements that record what they were made on."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any, get_args

from raydiff.config import Dtype
from raydiff.errors import UsageError, invalid

SAMPLE = "jobs/sample.parquet"
SHAPES = "random:llada-8b,random:sdar-4b,random:diffusiongemma-26b-a4b"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its benchmarks."""
    parser = subparsers.add_parser("bench", help="measure speed and quality")
    benches = parser.add_subparsers(dest="bench", required=True, metavar="BENCH")
    _add_engine(_bench(benches, "engine", "the engine against plain references"))
    _add_steps(_bench(benches, "steps", "quality and speed over steps and thresholds"))
    _add_cache(_bench(benches, "cache", "what approximate caches change and save"))
    _add_corpus(_bench(benches, "corpus", "documents/s of a job over the bare engine's"))
    _add_serve(_bench(benches, "serve", "loads over HTTP, and on what stands behind it"))
    _add_resume(_bench(benches, "resume", "what continuing a run of many shards costs"))
    _add_shapes(_bench(benches, "shapes", "speed and memory of public shapes"))
    _add_compare(_bench(benches, "compare", "two reports side by side"))


def _bench(benches: Any, name: str, help_text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = benches.add_parser(
        name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}."
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Run one benchmark, print its tables and write its report."""
    return int(args.run_bench(args))


def _common(parser: argparse.ArgumentParser, documents: int) -> None:
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
    _json(parser)


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write the report to this file; without a file print it last",
    )


def _add_engine(parser: argparse.ArgumentParser) -> None:
    _common(parser, 0)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--batch", type=_numbers(int), default=(1, 32), metavar="N,N")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--threshold", type=float, default=0.9)
    parser.add_argument("--repeats", type=int, default=3)
    parser.set_defaults(run_bench=_engine)


def _add_steps(parser: argparse.ArgumentParser) -> None:
    _common(parser, 0)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--steps", type=_numbers(int), default=(1, 2, 4, 8, 16), metavar="N,N")
    parser.add_argument("--threshold", type=_numbers(float), default=(0.5, 0.7, 0.9), metavar="X,X")
    parser.add_argument("--plot", metavar="FILE", help="draw ROUGE-L over speed to this file")
    parser.set_defaults(run_bench=_steps)


def _add_cache(parser: argparse.ArgumentParser) -> None:
    _common(parser, 100)
    parser.set_defaults(model="tiny-masked", dtype="fp32", run_bench=_cache)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--block-length", type=int, default=8)
    parser.add_argument("--steps", type=int, default=8, help="steps of each block")
    parser.add_argument("--refresh", type=_numbers(int), default=(1, 2, 4, 8), metavar="N,N")
    parser.add_argument("--window", type=_numbers(int), default=(0, 4, 8), metavar="N,N")
    parser.add_argument("--repeats", type=int, default=3)


def _add_corpus(parser: argparse.ArgumentParser) -> None:
    _common(parser, 0)
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="rounds in turn (3)")
    parser.add_argument(
        "--mixed",
        type=_numbers(int),
        metavar="N,N",
        help="documents of mixed lengths between these numbers of tokens, of the input's texts",
    )
    add = parser.add_argument
    add("--max-tokens", type=int, metavar="N", help="tokens of an answer (the model's usual)")
    add("--shard-rows", type=int, default=256, metavar="N", help="rows per commit (256)")
    add("--seed", type=int, default=0, metavar="N", help="of lengths and order (0)")
    parser.set_defaults(run_bench=_corpus)


def _add_serve(parser: argparse.ArgumentParser) -> None:
    from raydiff.cli.bench_serve import add_flags

    _common(parser, 256)
    add_flags(parser, _numbers)
    parser.set_defaults(run_bench=_serve)


def _add_resume(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--input", default=SAMPLE, metavar="FILE", help=f"Parquet of documents ({SAMPLE})")
    add("--shards", type=int, metavar="N", help="shards (10,000; a million with --simulate)")
    add("--pending", type=int, default=10, metavar="N", help="shards not committed (10)")
    add("--shard-rows", type=int, default=256, metavar="N", help="documents of a shard (256)")
    add("--repeats", type=int, default=3, metavar="N", help="starts of the run (3)")
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="sizes, times and memory of plan, listing and ledger, without a corpus",
    )
    _json(parser)
    parser.set_defaults(run_bench=_resume)


def _add_shapes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", type=_numbers(str), default=SHAPES, metavar="NAME,NAME")
    parser.add_argument("--batch", type=_numbers(int), default=(1, 8, 64), metavar="N,N")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument(
        "--dtype", default="bf16", choices=get_args(Dtype), help="of the weights (bf16)"
    )
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="engine threads (usable cores)"
    )
    parser.add_argument("--limit-s", type=float, default=540.0, help="seconds for all of it")
    _json(parser)
    parser.set_defaults(run_bench=_shapes)


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", help="report of an earlier run")
    parser.add_argument("after", help="report of a later run")
    _json(parser)
    parser.set_defaults(run_bench=_compare)


def _numbers(kind: type) -> Any:
    def parse(text: str) -> tuple[Any, ...]:
        return tuple(kind(part) for part in text.split(","))

    parse.__name__ = f"comma-separated {kind.__name__}"
    return parse


def _engine(args: argparse.Namespace) -> int:
    from raydiff.bench.engine import EngineBench, run_engine_bench

    _at_least_one("repeats", args.repeats)
    for batch in args.batch:
        _at_least_one("batch", batch)
    bench = EngineBench(
        input=args.input,
        model=args.model,
        batches=tuple(args.batch),
        steps=args.steps,
        threshold=args.threshold,
        device=args.device,
        dtype=args.dtype,
        threads=args.threads,
        documents=args.documents,
        repeats=args.repeats,
    )
    report = run_engine_bench(bench, progress=print)
    columns = ["name", "batch", "steps", "threshold", "output_tokens", "tokens_per_forward"]
    columns += ["output_tokens_per_s", "documents_per_s", "rougeL"]
    return _finish(args, report, contenders=columns, ratios=["of", "over", "ratio"])


def _steps(args: argparse.Namespace) -> int:
    from raydiff.bench.steps import StepsBench, plot, run_steps_bench

    bench = StepsBench(
        input=args.input,
        model=args.model,
        steps=tuple(args.steps),
        thresholds=tuple(args.threshold),
        device=args.device,
        dtype=args.dtype,
        threads=args.threads,
        documents=args.documents,
    )
    report = run_steps_bench(bench, progress=print)
    if args.plot:
        plot(report, args.plot)
    columns = ["decoding", "tokens_per_forward", "output_tokens_per_s"]
    return _finish(args, report, points=[*columns, "rouge1", "rouge2", "rougeL"])


def _cache(args: argparse.Namespace) -> int:
    from raydiff.bench.cache import CacheBench, run_cache_bench

    _at_least_one("repeats", args.repeats)
    bench = CacheBench(
        input=args.input,
        model=args.model,
        block_length=args.block_length,
        steps=args.steps,
        refresh=tuple(args.refresh),
        windows=tuple(args.window),
        device=args.device,
        dtype=args.dtype,
        threads=args.threads,
        documents=args.documents,
        repeats=args.repeats,
    )
    report = run_cache_bench(bench, progress=print)
    columns = ["cache", "tokens_equal", "documents_equal", "similarity", "rougeL", "forwards"]
    columns += ["positions_per_forward", "output_tokens_per_s", "over_none"]
    return _finish(args, report, caches=columns)


def _corpus(args: argparse.Namespace) -> int:
    from raydiff.bench.corpus import CorpusBench, run_corpus_bench

    _at_least_one("repeats", args.repeats)
    _at_least_one("shard-rows", args.shard_rows)
    if args.mixed is not None and len(args.mixed) != 2:
        raise UsageError(invalid("--mixed", expected="two numbers", got=args.mixed), "mixed")
    bench = CorpusBench(
        input=args.input,
        model=args.model,
        dtype=args.dtype,
        threads=args.threads,
        documents=args.documents,
        repeats=args.repeats,
        mixed=args.mixed,
        max_tokens=args.max_tokens,
        shard_rows=args.shard_rows,
        seed=args.seed,
    )
    report = run_corpus_bench(bench, progress=print)
    columns = ["name", "documents_per_s", "seconds_median", "steady_busy", "busy", "busy_s"]
    columns += ["forwards", "rows_per_forward", "padding", "context_padding"]
    return _finish(args, report, contenders=columns)


def _serve(args: argparse.Namespace) -> int:
    from raydiff.cli.bench_serve import COLUMNS, COMPARED, FIGURES, measure, show

    report = measure(args)
    show(report)
    tables = {"cases": [*COLUMNS, *FIGURES]}
    if report["comparisons"]:
        tables["comparisons"] = [*COMPARED, "added_ms"]
    return _finish(args, report, **tables)


def _resume(args: argparse.Namespace) -> int:
    shards = args.shards or (1_000_000 if args.simulate else 10_000)
    for name, value in (("shards", shards), ("shard-rows", args.shard_rows)):
        _at_least_one(name, value)
    if args.simulate:
        from raydiff.bench.scale import ScaleBench, run_scale_bench

        scale = ScaleBench(shards=shards, shard_rows=args.shard_rows, pending=args.pending)
        columns = ["step", "seconds", "bytes", "bytes_per_shard", "process_mib"]
        return _finish(args, run_scale_bench(scale, progress=print), steps=columns)

    from raydiff.bench.resume import ResumeBench, run_resume_bench

    _at_least_one("repeats", args.repeats)
    bench = ResumeBench(
        input=args.input,
        shards=shards,
        pending=args.pending,
        shard_rows=args.shard_rows,
        repeats=args.repeats,
    )
    report = run_resume_bench(bench, progress=print)
    print(f"\nreading the corpus {report['reading_s']:.2f} s, resuming {report['resume_s']:.2f} s")
    return _finish(args, report, starts=["resume_s", "load_plan_s", "list_output_s"])


def _shapes(args: argparse.Namespace) -> int:
    from raydiff.bench.shapes import ShapesBench, run_shapes_bench

    for name, values in (
        ("batch", args.batch),
        ("prompt-tokens", [args.prompt_tokens]),
        ("max-tokens", [args.max_tokens]),
        ("limit-s", [args.limit_s]),
    ):
        for value in values:
            _at_least_one(name, value)
    bench = ShapesBench(
        models=tuple(args.models),
        batches=tuple(args.batch),
        prompt_tokens=args.prompt_tokens,
        max_tokens=args.max_tokens,
        device=args.device,
        dtype=args.dtype,
        threads=args.threads,
        limit_s=args.limit_s,
    )
    report = run_shapes_bench(bench, progress=print)
    columns = ["model", "batch", "output_tokens", "complete", "output_tokens_per_s"]
    columns += ["tokens_per_forward", "denoise_s_per_forward", "encode_s_per_forward"]
    return _finish(args, report, points=[*columns, "weights_bytes", "peak_memory_bytes", "error"])


def _compare(args: argparse.Namespace) -> int:
    from raydiff.bench.compare import compare_reports, read_report

    comparison = compare_reports(read_report(args.before), read_report(args.after))
    for warning in comparison["warnings"]:
        print(f"differs: {warning}")
    return _finish(args, comparison, rows=["what", "before", "after", "ratio"])


def _at_least_one(name: str, value: float) -> None:
    if value < 1:
        raise UsageError(invalid(name, expected="an integer of at least 1", got=value), name)


def _finish(args: argparse.Namespace, report: Mapping[str, Any], **tables: list[str]) -> int:
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
