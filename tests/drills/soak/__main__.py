"""`tests/drills.sh soak`: full load with everything that callers do; what grows is a leak."""

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
os.environ["RAY_ADDRESS"] = "local"


def main() -> int:
    """Run the load; status 1 when memory grew or a slot stayed taken."""
    parser = argparse.ArgumentParser(prog="tests/drills.sh soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help="of load (10)")
    parser.add_argument("--clients", type=int, default=48, metavar="N", help="at a time (48)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the clients (0)")
    parser.add_argument(
        "--model", default="simulated:32x4=0.2s", metavar="NAME", help="simulated:32x4=0.2s"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the samples here")
    args = parser.parse_args()
    from .soak import run

    return run(args.minutes * 60, args.clients, args.seed, args.model, args.json)


if __name__ == "__main__":
    sys.exit(main())
