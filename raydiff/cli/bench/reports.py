"""`raydiff bench compare`: two reports."""

from __future__ import annotations

import argparse

from raydiff.cli.bench.flags import finish, json_flag


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Flags of `raydiff bench compare`."""
    parser.add_argument("before", help="report of an earlier run")
    parser.add_argument("after", help="report of a later run")
    json_flag(parser)
    parser.set_defaults(run_bench=_compare)


def _compare(args: argparse.Namespace) -> int:
    from raydiff.bench.compare import compare_reports, read_report

    comparison = compare_reports(read_report(args.before), read_report(args.after))
    for warning in comparison["warnings"]:
        print(f"differs: {warning}")
    return finish(args, comparison, rows=["what", "before", "after", "ratio"])
