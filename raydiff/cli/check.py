"""`raydiff check`: is a Serve config right, down to the last key."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser("check", help="check every key of a Serve config")
    parser.add_argument("file", type=Path, metavar="FILE", help="Serve config or RayService")


def run(args: argparse.Namespace) -> int:
    """Say what the file would serve; a key or value that is wrong ends it with status 2."""
    from raydiff.launch.serve_config import read_serve_config

    config = read_serve_config(args.file)
    names = ", ".join(application["name"] for application in config["applications"])
    print(f"{args.file} is right: {names}.")
    return 0
