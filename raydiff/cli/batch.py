"""`raydiff batch`: what the job of a batch runs. Gateways submit it; people need not."""

from __future__ import annotations

import argparse
import sys

from raydiff.errors import UsageError

DONE = 0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "batch", help="bring one batch of the Batch API to its end (gateways submit this as a job)"
    )
    parser.add_argument("batch", metavar="BATCH", help="its id")
    parser.add_argument("--settings", required=True, metavar="JSON", help="the app's `batches`")


def run(args: argparse.Namespace) -> int:
    """Drive the batch on the cluster at hand.

    Raises:
        ClusterError: it could not be brought to its end; a later job continues it.
        UsageError: the settings are none.
    """
    from pydantic import ValidationError

    from raydiff.batches.driver import drive, run_on_cluster
    from raydiff.batches.store import BatchStore
    from raydiff.config import BatchSettings, ServeSettings
    from raydiff.launch.cluster import join_cluster
    from raydiff.launch.signals import terminable

    try:
        settings = BatchSettings.model_validate_json(args.settings)
    except ValidationError as error:
        raise UsageError(f"--settings: {error.errors()[0]['msg']}.", "--settings") from None
    with terminable():
        cluster = join_cluster(cpus=1, endpoint=ServeSettings(port=0), metrics_port=None)
        try:
            state = drive(BatchStore(settings), args.batch, run_on_cluster)
        finally:
            cluster.leave()
    status = "not open" if state is None else state.status
    print(f"Batch {args.batch}: {status}", file=sys.stderr)
    return DONE
