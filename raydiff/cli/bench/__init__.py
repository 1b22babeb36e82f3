"""`raydiff bench`: measurements that record what they were made on."""

from __future__ import annotations

import argparse
from typing import Any

from raydiff.cli.bench.corpus import add_corpus, add_resume
from raydiff.cli.bench.engine import add_cache, add_engine, add_shapes, add_steps
from raydiff.cli.bench.fleet import add_autoscale, add_fleet
from raydiff.cli.bench.lanes import add_lanes
from raydiff.cli.bench.reports import add_compare
from raydiff.cli.bench.serve import add_serve


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its benchmarks."""
    parser = subparsers.add_parser("bench", help="measure speed and quality")
    benches = parser.add_subparsers(dest="bench", required=True, metavar="BENCH")
    add_engine(_bench(benches, "engine", "the engine against plain references"))
    add_steps(_bench(benches, "steps", "quality and speed over steps and thresholds"))
    add_cache(_bench(benches, "cache", "what approximate caches change and save"))
    add_corpus(_bench(benches, "corpus", "documents/s of a job over the bare engine's"))
    add_serve(_bench(benches, "serve", "loads over HTTP, and on what stands behind it"))
    add_lanes(_bench(benches, "lanes", "interactive requests beside batch work"))
    add_autoscale(_bench(benches, "autoscale", "replicas that follow a load, and Serve's own"))
    add_fleet(_bench(benches, "fleet", "what simulated replicas cost, and how many fit"))
    add_resume(_bench(benches, "resume", "what continuing a run of many shards costs"))
    add_shapes(_bench(benches, "shapes", "speed and memory of public shapes"))
    add_compare(_bench(benches, "compare", "two reports side by side"))


def _bench(benches: Any, name: str, help_text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = benches.add_parser(
        name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}."
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Run one benchmark, print its tables and write its report."""
    return int(args.run_bench(args))
