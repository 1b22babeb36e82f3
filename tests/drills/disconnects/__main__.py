"""`tests/drills.sh disconnects`: seconds between a client's end and its slot's."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

# Read by Ray when it is imported.
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["PYTHONPATH"] = str(Path(__file__).parents[3])
os.environ["RAY_ADDRESS"] = "local"

import httpx

from raydiff.client import Client
from raydiff.config import AccessSettings, AppSettings, ModelSettings, ServeSettings
from raydiff.launch import running_app

MODEL = "left"
SIMULATED = "simulated:8x16=0.8s"
"""A forward takes 50 ms: the slot is free at the first after the cancellation."""
LIMIT_S = 1.0
POLL_S = 0.01


async def _seconds(url: str, client: Client, stream: bool) -> float:
    """From the end of a connection in mid-call until no replica holds its requests."""
    body = {"model": MODEL, "prompt": ["x"] * 4, "max_tokens": 512, "stream": stream}
    http = httpx.AsyncClient(timeout=60)
    call = asyncio.create_task(http.post(f"{url}/v1/completions", json=body))
    await _until_held(client, True)
    await asyncio.sleep(0.3)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await http.aclose()
    gone_s = time.monotonic()
    await _until_held(client, False)
    return time.monotonic() - gone_s


async def _until_held(client: Client, held: bool) -> None:
    """Wait until replicas hold requests, or none."""
    while True:
        replicas = await client.describe(timeout_s=30)
        if any(replica["requests"] for replica in replicas) == held:
            return
        await asyncio.sleep(POLL_S)


async def _measure(url: str, client: Client, count: int) -> dict[str, list[float]]:
    return {
        name: sorted([await _seconds(url, client, name == "stream") for _ in range(count)])
        for name in ("whole", "stream")
    }


def main() -> int:
    """Measure; status 1 when a slot was held for too long."""
    parser = argparse.ArgumentParser(prog="tests/drills.sh disconnects", description=__doc__)
    parser.add_argument("--count", type=int, default=20, metavar="N", help="of each sort (20)")
    parser.add_argument("--haproxy", action="store_true", help="through HAProxy")
    args = parser.parse_args()
    model = ModelSettings(name=MODEL, model=SIMULATED, num_cpus=0.1)
    settings = AppSettings(models=(model,), access=AccessSettings(anonymous="allowed"))
    host = "0.0.0.0" if args.haproxy else "127.0.0.1"
    endpoint = ServeSettings(host=host, port=0, haproxy=args.haproxy)
    with running_app(settings, endpoint) as app:
        client = Client.connect(MODEL, app.app_name)
        measured = asyncio.run(_measure(app.url, client, args.count))
    for name, seconds in measured.items():
        middle = seconds[len(seconds) // 2]
        print(f"{name:7s} median {middle:.3f} s, longest {seconds[-1]:.3f} s of {len(seconds)}")
    return 0 if max(max(values) for values in measured.values()) <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
