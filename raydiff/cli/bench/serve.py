"""`raydiff bench serve`: loads on an app, and on what stands behind it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from raydiff.cli.bench.flags import common, finish, numbers
from raydiff.config import environment_value
from raydiff.errors import UsageError, invalid

COLUMNS = ("contender", "clients", "rate_per_s", "prompts_per_request", "requests")
FIGURES = ("success_rate", "requests_per_s", "output_tokens_per_s", "rows_per_forward", "busy")
COMPARED = ("of", "over", "clients", "rate_per_s", "prompts_per_request", "tokens_ratio")
PERCENTILES = ("p50_s", "p90_s", "p95_s", "p99_s", "max_s")


def add_serve(parser: argparse.ArgumentParser) -> None:
    """Flags of `raydiff bench serve`."""
    common(parser, 256)
    add = parser.add_argument
    add(
        "--contenders",
        type=numbers(str),
        metavar="NAME,NAME",
        help="what takes turns: http (default), haproxy (its statistics listen on all interfaces), "
        "handle, engine, bare",
    )
    add("--url", action="append", default=[], help="an app that runs already; may be repeated")
    add("--name", default="", help="of the model in requests, where it is not the last part of it")
    add("--key-variable", metavar="NAME", help="environment variable that has the API key")
    add("--clients", type=numbers(int), default=(64,), metavar="N,N", help="in flight (64)")
    add("--rate", type=numbers(float), default=(), metavar="X,X", help="open loop: requests/s due")
    add("--arrivals", choices=("poisson", "constant"), default="poisson", help="of an open loop")
    add("--prompts-per-request", type=numbers(int), default=(1,), metavar="N,N", help="(1)")
    add("--requests", type=int, default=0, metavar="N", help="of a turn, warm-up included")
    add("--warm-up", type=int, metavar="N", help="first requests left out (one a client)")
    add("--prompt-tokens", type=int, metavar="N", help="tokens of each prompt's text")
    add("--output-tokens", type=int, metavar="N", help="tokens of each answer, exactly")
    add("--stream", action="store_true", help="stream answers")
    add("--lane", choices=("interactive", "batch"), default="interactive")
    add("--rounds", type=int, default=1, metavar="N", help="turns of each contender (1)")
    add("--processes", type=int, default=1, metavar="N", help="that generate load (1)")
    add("--replicas", type=int, default=1, metavar="N", help="of an app started here (1)")
    add("--max-rows", type=int, default=64, metavar="N", help="rows of an engine (64)")
    add("--seed", type=int, default=0, metavar="N", help="of arrivals, order and made prompts (0)")
    parser.set_defaults(run_bench=_serve)


def _serve(args: argparse.Namespace) -> int:
    report = _measure(args)
    _show(report)
    tables = {"cases": [*COLUMNS, *FIGURES]}
    if report["comparisons"]:
        tables["comparisons"] = [*COMPARED, "added_ms"]
    return finish(args, report, **tables)


def _measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run the benchmark that the flags describe."""
    from raydiff.bench.serving.bench import run_serve_bench
    from raydiff.bench.serving.settings import ServeBench

    usual = () if args.url else ("http",)
    bench = ServeBench(
        input=args.input,
        model=args.model,
        name=args.name,
        dtype=args.dtype,
        threads=args.threads,
        replicas=args.replicas,
        documents=args.documents,
        contenders=args.contenders or usual,
        urls=tuple(args.url),
        clients=args.clients,
        rates=args.rate,
        arrivals=args.arrivals,
        prompts_per_request=args.prompts_per_request,
        requests=args.requests,
        warm_up=args.warm_up,
        prompt_tokens=args.prompt_tokens,
        output_tokens=args.output_tokens,
        stream=args.stream,
        lane=args.lane,
        key=_key(args.key_variable),
        rounds=args.rounds,
        processes=args.processes,
        max_rows=args.max_rows,
        seed=args.seed,
    )
    return run_serve_bench(bench, progress=print)


def _show(report: Mapping[str, Any]) -> None:
    """Print what the report's tables have no columns for."""
    from raydiff.bench.report import table

    cases = report["cases"]
    for part, title in (("total", "total time"), ("first_text", "time to first committed text")):
        rows = [{**case, **case[part]} for case in cases if case[part]]
        if rows:
            print(f"\n{title}\n{table(rows, [*COLUMNS[:4], *PERCENTILES])}")
    roles = sorted({role for case in cases for role in case["cpu_ms_per_request"]})
    rows = [
        {**case, **case["cpu_ms_per_request"], "load": case["generator"]["cpu"]} for case in cases
    ]
    print("\nCPU ms per request by process, and the share of a core that generating load took")
    print(table(rows, [*COLUMNS[:4], *roles, "load"]))


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    value = environment_value(variable)
    if not value:
        expected = "the name of an environment variable with a key"
        raise UsageError(invalid("--key-variable", expected=expected, got=variable), "key-variable")
    return value
