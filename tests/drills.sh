#!/usr/bin/env bash
# The long fault drills, against real Ray clusters and the bundled model:
#   tests/drills.sh faults             a hundred faults at random moments, of all kinds, each run
#                                      judged by its files (within 45 minutes on two idle cores)
#   tests/drills.sh faults --count 12 --kinds worker-kill,s3-outage --seed 7 --json FILE
#   tests/drills.sh                    the tests marked slow (about twenty minutes)
#   tests/drills.sh tests/corpus -k killed_ten
set -euo pipefail
cd "$(dirname "$0")/.."
source deploy/setup.sh

ensure_venv test,bench

export RAY_AUTH_MODE=disabled RAY_USAGE_STATS_ENABLED=0
if [ "${1:-}" = faults ]; then
  shift
  exec .venv/bin/python -m tests.drills "$@"
fi
exec .venv/bin/python -m pytest -m slow -s "$@"
