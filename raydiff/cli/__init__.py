"""The `raydiff` command. Each module of this package is one subcommand.

Exit status: 0 done, 1 finished with failed documents (`runs verify`: with faults), 2 usage, 3 could
not run, 130 interrupted.
A command module has `add_parser(subparsers)` and `run(args) -> int`, and imports what is
heavy inside `run`, so that `raydiff --help` loads neither torch nor ray.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from raydiff.errors import RaydiffError, UsageError
from raydiff.version import __version__

DONE = 0
FAILED_DOCUMENTS = 1
USAGE = 2
COULD_NOT_RUN = 3
INTERRUPTED = 130

COMMANDS = (
    "generate",
    "summarize",
    "rewrite",
    "label",
    "runs",
    "plan",
    "serve",
    "keys",
    "batch",
    "check",
    "deploy",
    "bench",
    "train",
    "models",
)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="raydiff", description="Diffusion language models in bulk and online on Ray."
    )
    parser.add_argument("--version", action="version", version=f"raydiff {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        import_module(f"raydiff.cli.{name}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; errors are one line on stderr."""
    args = build_parser().parse_args(argv)
    command = import_module(f"raydiff.cli.{args.command}")
    return exit_status(lambda: int(command.run(args)))


def exit_status(command: Callable[[], int]) -> int:
    """Run a command; the status it returns, or that of the error it ends with."""
    # Read by transformers, here and in Ray's workers: its bars would cut through our own output.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        return command()
    except UsageError as error:
        return _fail(error, USAGE)
    except RaydiffError as error:
        return _fail(error, COULD_NOT_RUN)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) is gone; keep Python's exit from failing on the same pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        if error.errno is None:
            raise  # not of a file: a fault of ours
        # A traceback would end with the status of failed documents.
        remedy = "What is done is kept; mend this, then run the same command again."
        print(f"raydiff: {error}. {remedy}", file=sys.stderr)
        return COULD_NOT_RUN


def _fail(error: RaydiffError, status: int) -> int:
    print(f"raydiff: {error}", file=sys.stderr)
    return status
