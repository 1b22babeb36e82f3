"""`raydiff bench autoscale|fleet`: fleets of simulated replicas."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from raydiff.cli.bench.flags import finish, json_flag, numbers
from raydiff.errors import UsageError, invalid


def add_autoscale(parser: argparse.ArgumentParser) -> None:
    """Flags of `raydiff bench autoscale`."""
    add = parser.add_argument
    add("--model", default="simulated:4x16=2s", help="simulated:... (4 rows, 16 forwards, 2 s)")
    add("--phases", default="1:30,40:150,1:240", metavar="N:S,N:S", help="clients for seconds")
    add("--policies", type=numbers(str), default=("backlog", "requests"), metavar="NAME,NAME")
    add("--max-replicas", type=int, default=16, metavar="N")
    add("--min-replicas", type=int, default=1, metavar="N")
    add("--max-rows", type=int, default=4, metavar="N", help="of each replica (4)")
    add("--target", type=float, default=4.0, metavar="S", help="seconds of interactive work (4)")
    add("--down-after", type=float, default=60.0, metavar="S", help="(60)")
    add("--stats-interval", type=float, default=2.0, metavar="S", help="(2)")
    add("--plot", metavar="FILE", help="draw the replicas over time to this SVG file")
    json_flag(parser)
    parser.set_defaults(run_bench=_autoscale)


def _autoscale(args: argparse.Namespace) -> int:
    from raydiff.bench.fleet.autoscale import AutoscaleBench, run_autoscale_bench
    from raydiff.bench.fleet.plot import replicas_svg
    from raydiff.bench.report import table
    from raydiff.config import AutoscalingSettings

    rules = AutoscalingSettings(
        interactive_target_s=args.target,
        down_after_s=args.down_after,
        stats_interval_s=args.stats_interval,
    )
    bench = AutoscaleBench(
        model=args.model,
        phases=phases(args.phases),
        policies=args.policies,
        rules=rules,
        min_replicas=args.min_replicas,
        max_replicas=args.max_replicas,
        max_rows=args.max_rows,
    )
    report = run_autoscale_bench(bench, progress=print)
    if args.plot:
        Path(args.plot).write_text(replicas_svg(report), encoding="utf-8")
    rows = [{"policy": p["policy"], **phase} for p in report["policies"] for phase in p["phases"]]
    percentiles = ["p50_s", "p95_s", "late_p50_s", "late_p95_s"]
    print(table(rows, ["policy", "clients", "requests", *percentiles]))
    columns = ["policy", "requests", "failed", "most_replicas", "last_replicas"]
    return finish(args, report, policies=[*columns, "direction_changes", "replica_seconds"])


def phases(text: str) -> tuple[tuple[int, float], ...]:
    """Phases of a load, as "1:30,40:150".

    Raises:
        UsageError: it reads otherwise.
    """
    try:
        pairs = [part.split(":") for part in text.split(",")]
        found = tuple((int(clients), float(seconds)) for clients, seconds in pairs)
    except ValueError:
        found = ()
    if not found or any(clients < 0 or seconds <= 0 for clients, seconds in found):
        expected = "CLIENTS:SECONDS, separated by commas"
        raise UsageError(invalid("phases", expected=expected, got=text), "phases")
    return found


def add_fleet(parser: argparse.ArgumentParser) -> None:
    """Flags of `raydiff bench fleet`."""
    add = parser.add_argument
    add("--model", default="simulated:32x16=0.5s", help="simulated:...")
    add("--replicas", type=numbers(int), default=(1, 2, 4, 8, 16), metavar="N,N")
    add("--prompts-per-call", type=numbers(int), default=(1, 32), metavar="N,N", help="(1,32)")
    add("--way", default="handle", choices=("handle", "http"), help="how replicas are called")
    add("--seconds", type=float, default=15.0, metavar="S", help="of each load, about (15)")
    add("--idle", type=float, default=10.0, metavar="S", help="watched doing nothing (10)")
    json_flag(parser)
    parser.set_defaults(run_bench=_fleet)


def _fleet(args: argparse.Namespace) -> int:
    from raydiff.bench.fleet.cost import FleetBench, run_fleet_bench

    bench = FleetBench(
        model=args.model,
        replicas=args.replicas,
        prompts_per_call=args.prompts_per_call,
        way=args.way,
        seconds=args.seconds,
        idle_s=args.idle,
    )
    report: dict[str, Any] = run_fleet_bench(bench, progress=print)
    sizes = ["replicas", "resize_s", "resize_cpu_s", "idle_cores", "idle_replica_cores"]
    cases = ["replicas", "prompts_per_call", "failed", "rows_per_s", "efficiency", "cores"]
    costs = ["generator_cores", "saturated", "cpu_ms_per_call", "cpu_ms_per_forward"]
    return finish(
        args,
        report,
        sizes=[*sizes, "pss_mib_per_replica"],
        cases=[*cases, *costs, "replica_cpu_ms_per_forward", "rows_per_forward"],
    )
