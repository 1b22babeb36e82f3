"""`raydiff bench lanes`: interactive requests beside batch work."""

from __future__ import annotations

import argparse

from raydiff.cli.bench.flags import at_least_one, common, finish
from raydiff.errors import UsageError, invalid

COLUMNS = [
    "phase",
    "first_text_p50_s",
    "first_text_p95_s",
    "batch_rows_per_s",
    "interactive_busy",
    "batch_busy",
    "longest_wait",
    "passed_over",
]


def add_lanes(parser: argparse.ArgumentParser) -> None:
    """Flags of `raydiff bench lanes`."""
    common(parser, 256)
    add = parser.add_argument
    add("--share", type=float, default=0.2, metavar="X", help="of the time, interactive (0.2)")
    add("--requests", type=int, default=100, metavar="N", help="interactive, of a phase (100)")
    add("--prompt-tokens", type=int, metavar="N", help="cut prompts to so many (whole)")
    add("--max-tokens", type=int, metavar="N", help="tokens of an answer (the model's usual)")
    add("--max-rows", type=int, default=64, metavar="N", help="rows of the engine (64)")
    add("--repeats", type=int, default=3, metavar="N", help="rounds of all phases (3)")
    add("--rider-share", type=float, metavar="X", help="longer forwards for batch rows (0.25)")
    add("--yield-loss", type=float, metavar="X", help="speed given up for shorter ones (0.05)")
    add("--batch-share", type=float, metavar="X", help="least share of the batch lane (0.05)")
    add("--seed", type=int, default=0, metavar="N", help="of arrivals and order (0)")
    parser.set_defaults(run_bench=_lanes)


def _lanes(args: argparse.Namespace) -> int:
    from raydiff.bench.lanes import LanesBench, run_lanes_bench
    from raydiff.config import EngineSettings

    for flag in ("requests", "repeats"):
        at_least_one(flag, getattr(args, flag))
    if not 0 < args.share < 1:
        raise UsageError(invalid("--share", expected="a number between 0 and 1", got=args.share))
    given = {
        "rider_share": args.rider_share,
        "batch_yield_loss": args.yield_loss,
        "batch_share": args.batch_share,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    bench = LanesBench(
        input=args.input,
        model=args.model,
        dtype=args.dtype,
        documents=args.documents,
        settings=EngineSettings(max_rows=args.max_rows, threads=args.threads, **settings),
        interactive_share=args.share,
        interactive_requests=args.requests,
        prompt_tokens=args.prompt_tokens,
        max_tokens=args.max_tokens,
        repeats=args.repeats,
        seed=args.seed,
    )
    report = run_lanes_bench(bench, lambda line: print(line, flush=True))
    for name, value in report["summary"].items():
        print(f"{name}: {value:.3g}")
    return finish(args, report, phases=COLUMNS)
