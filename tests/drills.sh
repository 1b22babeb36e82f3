#!/usr/bin/env bash
# The long fault drills, against real Ray clusters and the bundled model:
#   tests/drills.sh faults             a hundred faults at random moments, of all kinds, each run
#                                      judged by its files (within 45 minutes on two idle cores)
#   tests/drills.sh faults --count 12 --kinds worker-kill,s3-outage --seed 7 --json FILE
#   tests/drills.sh serving            faults of a serving fleet under load, one of each kind: killed,
#                                      hung and stalled replicas, gateways, proxies, nodes, the head,
#                                      rolling updates (about ten minutes)
#   tests/drills.sh serving --kinds head-kill,gateway-kill --count 6 --seed 7 --json FILE
#   tests/drills.sh soak --minutes 10  full load with disconnects and deadlines: memory stays flat
#                                      and no slot is lost
#   tests/drills.sh disconnects        seconds until a client that went away holds no slot any more;
#                                      --haproxy goes through HAProxy (about a minute)
#   tests/drills.sh requests           10,000 requests of random validity, and schemathesis at length
#                                      (about five minutes)
#   tests/drills.sh batches            batches of the Batch API: killed gateways and jobs, a lost
#                                      head, a cancelled batch (about five minutes)
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
if [[ "${1:-}" =~ ^(serving|soak|disconnects)$ ]]; then
  ensure_debian_packages redis-server
  name="tests.drills.$1"
  shift
  exec .venv/bin/python -m "$name" "$@"
fi
if [ "${1:-}" = requests ]; then
  export RAYDIFF_RANDOM_REQUESTS=10000 RAYDIFF_SCHEMATHESIS_EXAMPLES=200
  exec .venv/bin/python -m pytest -s --timeout=1800 \
    tests/serve/test_random_requests.py tests/serve/test_schemathesis.py
fi
if [ "${1:-}" = batches ]; then
  shift
  exec .venv/bin/python -m pytest -m slow -s tests/batches "$@"
fi
exec .venv/bin/python -m pytest -m slow -s "$@"
