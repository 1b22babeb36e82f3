#!/usr/bin/env bash
# The whole path on one machine: a Ray cluster on the loopback interface, `ray job submit`, Ray
# Data, Ray Serve and the bundled model, over the 500 documents of jobs/sample.parquet.
#
#   jobs/demo.sh [OUTPUT]      (out/demo-1, out/demo-2, ... when left out)
#
# Run it again after an interruption and it resumes. It stops whatever it started.
set -euo pipefail
cd "$(dirname "$0")/.."
source deploy/setup.sh

ensure_venv ""
export PATH="$PWD/.venv/bin:$PATH"
unset RAY_ADDRESS
# Ray listens on all interfaces whatever its address, so its cluster gets a token of its own.
RAY_AUTH_TOKEN="$(python -c 'import secrets; print(secrets.token_hex(32))')"
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0 # nothing else runs on this cluster

# The last unfinished out/demo-N, else the next one.
choose_output() {
  local n=1
  while [ -e "out/demo-$n/_SUCCESS" ]; do n=$((n + 1)); done
  echo "out/demo-$n"
}

OUTPUT="$(realpath -m "${1:-$(choose_output)}")"
if [ -e "$OUTPUT/_SUCCESS" ]; then
  say "$OUTPUT is finished already: showing it"
  exec python jobs/show_run.py "$OUTPUT" --input jobs/sample.parquet
elif [ -e "$OUTPUT/plan.parquet" ]; then
  say "resuming $OUTPUT"
else
  say "writing to $OUTPUT"
fi

WORK="$(mktemp -d /tmp/raydiff.XXXXXX)" # short: Ray puts sockets in it
HEAD_PID=""

# Ends the cluster that this script started, and only that one.
stop_cluster() {
  trap '' INT TERM
  if [ -n "$HEAD_PID" ]; then
    say "stopping the cluster"
    kill -TERM "$HEAD_PID" 2>/dev/null || true
    for _ in $(seq 60); do
      kill -0 "$HEAD_PID" 2>/dev/null || break
      sleep 0.5
    done
    # Whatever is left names the directory that is this cluster's own.
    grep -laF "$WORK/" /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3 | grep -vx $$ |
      xargs -r kill -KILL 2>/dev/null || true
  fi
  rm -rf "$WORK"
}
trap stop_cluster EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

read -r GCS DASHBOARD METRICS AGENT CLIENT < <(python - <<'PYTHON'
import socket

sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(5)]
print(*(s.getsockname()[1] for s in sockets))
PYTHON
)

# 127.0.0.2, because Ray replaces 127.0.0.1 by the machine's address on the network.
say "starting a Ray cluster on the loopback interface"
# A session of its own, so that Ctrl-C reaches this script first.
setsid ray start --head --block --node-ip-address=127.0.0.2 --temp-dir="$WORK/ray" \
  --num-cpus="$(($(nproc) > 4 ? $(nproc) : 4))" --port="$GCS" --metrics-export-port="$METRICS" \
  --dashboard-host=127.0.0.1 --dashboard-port="$DASHBOARD" \
  --dashboard-agent-listen-port="$AGENT" --ray-client-server-port="$CLIENT" \
  --min-worker-port=0 --max-worker-port=0 --disable-usage-stats >"$WORK/head.log" 2>&1 &
HEAD_PID=$!
disown "$HEAD_PID" # Bash would report its end

JOBS="http://127.0.0.1:$DASHBOARD"
for _ in $(seq 240); do
  python - "$JOBS/api/version" <<'PYTHON' && break
import os
import sys
import urllib.request

token = {"Authorization": f"Bearer {os.environ['RAY_AUTH_TOKEN']}"}
try:
    urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers=token), timeout=5)
except OSError:
    sys.exit(1)
PYTHON
  kill -0 "$HEAD_PID" 2>/dev/null || {
    cat "$WORK/head.log" >&2
    die "the Ray cluster did not start; its log stands above."
  }
  sleep 0.5
done

say "metrics at http://127.0.0.2:$METRICS/metrics, dashboard at $JOBS"
ray job submit --address "$JOBS" --working-dir . -- \
  python jobs/summarize.py jobs/sample.parquet "$OUTPUT" --shard-rows 64 --metrics-wait 12

python jobs/show_run.py "$OUTPUT" --input jobs/sample.parquet \
  --metrics-url "http://127.0.0.2:$METRICS/metrics"
