"""`raydiff deploy`: check a Serve config and hand it to a running cluster."""

from __future__ import annotations

import argparse
from pathlib import Path

WAIT_S = 1800.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "deploy", help="check a Serve config and deploy it, as `serve deploy` would"
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="Serve config")
    parser.add_argument(
        "--address", metavar="URL", help="the cluster's dashboard (http://127.0.0.1:8265)"
    )
    parser.add_argument("--no-wait", action="store_true", help="do not wait until it serves")


def run(args: argparse.Namespace) -> int:
    """Deploy; what did not change keeps running throughout."""
    from raydiff.config import dashboard_address
    from raydiff.launch.serve_config import read_serve_config
    from raydiff.launch.submission import connect, submit

    config = read_serve_config(args.file)
    api = connect(args.address or dashboard_address())
    names = submit(api, config, 0.0 if args.no_wait else WAIT_S)
    print(f"{'Sent' if args.no_wait else 'Serving'}: {', '.join(names)}.")
    return 0
