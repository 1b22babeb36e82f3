"""`raydiff bench engine|steps|cache|shapes`: the engine in one process."""

from __future__ import annotations

import argparse
from typing import get_args

from raydiff.cli.bench.flags import at_least_one, common, finish, json_flag, numbers
from raydiff.config import Dtype

SHAPES = "random:llada-8b,random:sdar-4b,random:diffusiongemma-26b-a4b"


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Flags of `raydiff bench engine`."""
    common(parser, 0)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--batch", type=numbers(int), default=(1, 32), metavar="N,N")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--threshold", type=float, default=0.9)
    parser.add_argument("--repeats", type=int, default=3)
    parser.set_defaults(run_bench=_engine)


def _engine(args: argparse.Namespace) -> int:
    from raydiff.bench.engine import EngineBench, run_engine_bench

    at_least_one("repeats", args.repeats)
    for batch in args.batch:
        at_least_one("batch", batch)
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
    return finish(args, report, contenders=columns, ratios=["of", "over", "ratio"])


def add_steps(parser: argparse.ArgumentParser) -> None:
    """Flags of `raydiff bench steps`."""
    common(parser, 0)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--steps", type=numbers(int), default=(1, 2, 4, 8, 16), metavar="N,N")
    parser.add_argument("--threshold", type=numbers(float), default=(0.5, 0.7, 0.9), metavar="X,X")
    parser.add_argument("--plot", metavar="FILE", help="draw ROUGE-L over speed to this file")
    parser.set_defaults(run_bench=_steps)


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
    return finish(args, report, points=[*columns, "rouge1", "rouge2", "rougeL"])


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Flags of `raydiff bench cache`."""
    common(parser, 100)
    parser.set_defaults(model="tiny-masked", dtype="fp32", run_bench=_cache)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--block-length", type=int, default=8)
    parser.add_argument("--steps", type=int, default=8, help="steps of each block")
    parser.add_argument("--refresh", type=numbers(int), default=(1, 2, 4, 8), metavar="N,N")
    parser.add_argument("--window", type=numbers(int), default=(0, 4, 8), metavar="N,N")
    parser.add_argument("--repeats", type=int, default=3)


def _cache(args: argparse.Namespace) -> int:
    from raydiff.bench.cache import CacheBench, run_cache_bench

    at_least_one("repeats", args.repeats)
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
    return finish(args, report, caches=columns)


def add_shapes(parser: argparse.ArgumentParser) -> None:
    """Flags of `raydiff bench shapes`."""
    parser.add_argument("--models", type=numbers(str), default=SHAPES, metavar="NAME,NAME")
    parser.add_argument("--batch", type=numbers(int), default=(1, 8, 64), metavar="N,N")
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
    json_flag(parser)
    parser.set_defaults(run_bench=_shapes)


def _shapes(args: argparse.Namespace) -> int:
    from raydiff.bench.shapes import ShapesBench, run_shapes_bench

    for name, values in (
        ("batch", args.batch),
        ("prompt-tokens", [args.prompt_tokens]),
        ("max-tokens", [args.max_tokens]),
        ("limit-s", [args.limit_s]),
    ):
        for value in values:
            at_least_one(name, value)
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
    return finish(args, report, points=[*columns, "weights_bytes", "peak_memory_bytes", "error"])
