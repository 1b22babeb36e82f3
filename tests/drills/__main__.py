"""`python -m tests.drills`: repeats faults at random moments and judges every run by its files."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

# Read by Ray and by OpenMP when they start, so they must be set before either is imported.
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
os.environ["RAY_SERVE_LOG_TO_STDERR"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # keeps Ray on loopback, here too
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
os.environ.pop("RAY_ADDRESS", None)


def main() -> int:
    """Run the drills; status 1 when a row was lost, repeated or wrong."""
    parser = argparse.ArgumentParser(prog="tests/drills.sh faults", description=__doc__)
    parser.add_argument("--count", type=int, default=100, metavar="N", help="drills (100)")
    parser.add_argument("--seed", type=int, metavar="N", help="of all that is random (any)")
    parser.add_argument("--kinds", metavar="NAME[,NAME...]", help="kinds of fault (all)")
    parser.add_argument(
        "--minutes",
        type=float,
        default=45.0,
        metavar="N",
        help="end within this, with fewer drills if need be (45)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="where failed runs are kept (temporary)"
    )
    args = parser.parse_args()
    from .session import Session

    kinds = args.kinds.split(",") if args.kinds else None
    return Session(args.seed, args.folder).run(args.count, kinds, args.minutes, args.json)


if __name__ == "__main__":
    sys.exit(main())
