#!/usr/bin/env bash
# Sets up what the tests need and runs them. Arguments go to pytest:
#   tests/run.sh                      the fast suite
#   tests/run.sh tests/engine -k stop
set -euo pipefail
cd "$(dirname "$0")/.."
source deploy/setup.sh

DEBIAN_PACKAGES=(git prometheus)

ensure_debian_packages "${DEBIAN_PACKAGES[@]}"
ensure_venv test,bench

export RAY_AUTH_MODE=disabled RAY_USAGE_STATS_ENABLED=0
exec .venv/bin/python -m pytest -m "not slow and not gpu" "$@"
