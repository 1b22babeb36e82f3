"""`raydiff bench corpus|resume`: jobs."""

from __future__ import annotations

import argparse

from raydiff.cli.bench.flags import SAMPLE, at_least_one, common, finish, json_flag, numbers
from raydiff.errors import UsageError, invalid


def add_corpus(parser: argparse.ArgumentParser) -> None:
    """Flags of `raydiff bench corpus`."""
    common(parser, 0)
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="rounds in turn (3)")
    parser.add_argument(
        "--mixed",
        type=numbers(int),
        metavar="N,N",
        help="documents of mixed lengths between these numbers of tokens, of the input's texts",
    )
    add = parser.add_argument
    add("--max-tokens", type=int, metavar="N", help="tokens of an answer (the model's usual)")
    add("--shard-rows", type=int, default=256, metavar="N", help="rows per commit (256)")
    add("--seed", type=int, default=0, metavar="N", help="of lengths and order (0)")
    parser.set_defaults(run_bench=_corpus)


def _corpus(args: argparse.Namespace) -> int:
    from raydiff.bench.corpus import CorpusBench, run_corpus_bench

    at_least_one("repeats", args.repeats)
    at_least_one("shard-rows", args.shard_rows)
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
    return finish(args, report, contenders=columns)


def add_resume(parser: argparse.ArgumentParser) -> None:
    """Flags of `raydiff bench resume`."""
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
    json_flag(parser)
    parser.set_defaults(run_bench=_resume)


def _resume(args: argparse.Namespace) -> int:
    shards = args.shards or (1_000_000 if args.simulate else 10_000)
    for name, value in (("shards", shards), ("shard-rows", args.shard_rows)):
        at_least_one(name, value)
    if args.simulate:
        from raydiff.bench.scale import ScaleBench, run_scale_bench

        scale = ScaleBench(shards=shards, shard_rows=args.shard_rows, pending=args.pending)
        columns = ["step", "seconds", "bytes", "bytes_per_shard", "process_mib"]
        return finish(args, run_scale_bench(scale, progress=print), steps=columns)

    from raydiff.bench.resume import ResumeBench, run_resume_bench

    at_least_one("repeats", args.repeats)
    bench = ResumeBench(
        input=args.input,
        shards=shards,
        pending=args.pending,
        shard_rows=args.shard_rows,
        repeats=args.repeats,
    )
    report = run_resume_bench(bench, progress=print)
    print(f"\nreading the corpus {report['reading_s']:.2f} s, resuming {report['resume_s']:.2f} s")
    return finish(args, report, starts=["resume_s", "load_plan_s", "list_output_s"])
