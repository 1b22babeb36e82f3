"""`tests/drills.sh serving`: faults under load, one after another, each judged by its callers."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

# Read by Ray when it is imported.
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["PYTHONPATH"] = str(Path(__file__).parents[3])
os.environ.pop("RAY_ADDRESS", None)


def main() -> int:
    """Run the drills; status 1 when a rule was broken."""
    parser = argparse.ArgumentParser(prog="tests/drills.sh serving", description=__doc__)
    parser.add_argument("--count", type=int, metavar="N", help="drills (one of each kind)")
    parser.add_argument("--seed", type=int, metavar="N", help="of all that is random (any)")
    parser.add_argument("--kinds", metavar="NAME[,NAME...]", help="kinds of fault (all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here")
    args = parser.parse_args()
    from .session import run

    kinds = args.kinds.split(",") if args.kinds else None
    return run(kinds, args.count, args.seed, args.json)


if __name__ == "__main__":
    sys.exit(main())
