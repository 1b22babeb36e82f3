#!/usr/bin/env bash
# The long fault drills, against real Ray clusters and the bundled model:
#   tests/drills.sh                    all of them (about twenty minutes on two idle cores)
#   tests/drills.sh tests/corpus -k killed_ten
set -euo pipefail
cd "$(dirname "$0")/.."
source deploy/setup.sh

ensure_venv test,bench

export RAY_AUTH_MODE=disabled RAY_USAGE_STATS_ENABLED=0
exec .venv/bin/python -m pytest -m slow -s "$@"
