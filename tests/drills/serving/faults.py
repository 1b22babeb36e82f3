"""The faults. Each strikes a fleet under load and says what it did."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..cluster import wait_until
from .fleet import NODES, Fleet, signal_all
from .load import MODEL

SIMULATED = "simulated:8x16=0.5s"
GATEWAYS = 2
REPLICAS = 2
COUNTS = {"gateway": GATEWAYS, f"model-{MODEL}": REPLICAS}
_REPLICA = f"ray::ServeReplica:raydiff:model-{MODEL}"
_GATEWAY = "ray::ServeReplica:raydiff:gateway"
_PROXY = "ray::ProxyActor"
HANG_LIMIT_S = 30.0


MODEL_ARGS: dict[str, Any] = {
    "name": MODEL,
    "model": SIMULATED,
    "num_cpus": 0.1,
    "min_replicas": REPLICAS,
    "max_replicas": REPLICAS,
}
APP_ARGS: dict[str, Any] = {"gateways": GATEWAYS, "drain_s": 15, "models": [MODEL_ARGS]}


def beside(args: Mapping[str, Any], *models: Mapping[str, Any]) -> dict[str, Any]:
    """The app with further models."""
    return {**args, "models": [*args["models"], *models]}


def app(args: Mapping[str, Any]) -> dict[str, Any]:
    """The app with the drilled model alone, as it is by now."""
    return {**args, "models": args["models"][:1]}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One kind of fault."""

    name: str
    strike: Callable[[Fleet, random.Random], str]
    """Do it; what was done. What it finds wrong, it raises as AssertionError."""
    cuts: bool = True
    """Whether connections may be cut or refused, which callers without retries see."""
    breaks: bool = True
    """Whether streams that began may break."""


def _kill_one(title: str, number: int) -> Callable[[Fleet, random.Random], str]:
    def strike(fleet: Fleet, rng: random.Random) -> str:
        pid = rng.choice(fleet.pids(title))
        signal_all([pid], number)
        return f"{signal.Signals(number).name} to one of {title.rpartition(':')[2]}"

    return strike


def _hang_replica(fleet: Fleet, rng: random.Random) -> str:
    """Its event loop, its engine and its answers to health checks stop together."""
    before = fleet.replicas()[f"model-{MODEL}"].keys()
    pid = rng.choice(fleet.pids(_REPLICA))
    began_s = time.monotonic()
    signal_all([pid], signal.SIGSTOP)
    wait_until(lambda: not before <= fleet.replicas()[f"model-{MODEL}"].keys(), "its failure", 60.0)
    failed_s = time.monotonic() - began_s
    wait_until(lambda: not _lives(pid), "a hung replica's end", 60.0)
    took_s = time.monotonic() - began_s
    assert failed_s <= HANG_LIMIT_S, f"the hung replica was failed after {failed_s:.1f} s"
    return f"hung; failed after {failed_s:.1f} s, killed after {took_s:.1f} s"


def _stall_replica(fleet: Fleet, rng: random.Random) -> str:
    """A model whose forwards stop in mid-call, while its event loop answers."""
    stalling = {"name": "stalls", "model": f"{SIMULATED},stall_after=40", "num_cpus": 0.1}
    fleet.deploy(beside(fleet.args, stalling))
    (first,) = fleet.replicas()["model-stalls"]
    pid = fleet.pids("ray::ServeReplica:raydiff:model-stalls")
    began_s = time.monotonic()
    answer = call_model(fleet, "stalls", 6 * 32)
    took_s = time.monotonic() - began_s
    assert answer in (200, 408, 503), f"status {answer}"
    wait_until(lambda: not any(_lives(p) for p in pid), "the stalled replica's end", 60.0)
    assert first not in fleet.replicas()["model-stalls"]
    fleet.deploy(app(fleet.args))
    limit_s = HANG_LIMIT_S + 5
    assert took_s <= 4 * limit_s, f"the call took {took_s:.1f} s"
    return f"stalled; its call ended with {answer} after {took_s:.1f} s"


def call_model(fleet: Fleet, model: str, max_tokens: int) -> int:
    """Status of one call that stalls every replica it reaches."""
    import httpx

    body = {"model": model, "prompt": "x", "max_tokens": max_tokens}
    headers = {"x-request-timeout-seconds": "50"}
    answer = httpx.post(f"{fleet.url}/v1/completions", json=body, headers=headers, timeout=120)
    return answer.status_code


def _kill_node(fleet: Fleet, rng: random.Random) -> str:
    node = rng.choice(fleet.nodes())
    fleet.kill(node)
    time.sleep(rng.uniform(0.0, 3.0))
    fleet.start_node(node)
    return f"killed node {node}"


def _terminate_node(fleet: Fleet, rng: random.Random) -> str:
    node = rng.choice(fleet.nodes())
    fleet.terminate(node)
    fleet.start_node(node)
    return f"SIGTERM to node {node}"


def _kill_head(fleet: Fleet, rng: random.Random) -> str:
    """Replicas and the nodes' proxies must live on."""
    before = set(fleet.pids(_REPLICA))
    fleet.kill("head")
    time.sleep(rng.uniform(1.0, 4.0))
    fleet.start_head()
    wait_until(lambda: fleet.is_whole(COUNTS), "the app after a restart of the head")
    assert before == set(fleet.pids(_REPLICA)), "replicas were restarted with the head"
    return "killed the head and started it again; replicas lived on"


def _change_models(fleet: Fleet, rng: random.Random) -> str:
    """Add two models, then take them away: the replicas of the one in use stay what they are."""
    before = fleet.replicas()[f"model-{MODEL}"]
    tiny = {"name": "tiny", "model": "random:tiny-sdar", "num_cpus": 0.1}
    bundled = {"name": "bundled", "model": "summarizer", "num_cpus": 0.1}
    fleet.deploy(beside(fleet.args, tiny, bundled))
    assert {call_model(fleet, "tiny", 4), call_model(fleet, "bundled", 4)} == {200}
    assert fleet.replicas()[f"model-{MODEL}"] == before, "replicas were restarted"
    fleet.deploy(app(fleet.args))
    assert fleet.replicas()[f"model-{MODEL}"] == before, "replicas were restarted"
    return "two models came and went; the other's replicas stayed"


def _update_model(fleet: Fleet, rng: random.Random) -> str:
    before = set(fleet.replicas()[f"model-{MODEL}"])
    (model,) = fleet.args["models"]
    fleet.deploy(
        {**fleet.args, "models": [{**model, "engine": {"max_rows": rng.randrange(32, 65)}}]}
    )
    assert not before & set(fleet.replicas()[f"model-{MODEL}"]), "an old replica still runs"
    return "rolling update of the model"


def _update_gateway(fleet: Fleet, rng: random.Random) -> str:
    before = set(fleet.replicas()["gateway"])
    fleet.deploy({**fleet.args, "request_timeout_s": rng.uniform(200, 900)})
    wait_until(lambda: not before & set(fleet.replicas()["gateway"]), "old gateways' end")
    return "rolling update of the gateways"


FAULTS = (
    Fault(name="replica-kill", strike=_kill_one(_REPLICA, signal.SIGKILL)),
    Fault(name="replica-term", strike=_kill_one(_REPLICA, signal.SIGTERM)),
    Fault(name="gateway-kill", strike=_kill_one(_GATEWAY, signal.SIGKILL)),
    Fault(name="gateway-term", strike=_kill_one(_GATEWAY, signal.SIGTERM)),
    Fault(name="proxy-kill", strike=_kill_one(_PROXY, signal.SIGKILL)),
    Fault(name="replica-hang", strike=_hang_replica),
    Fault(name="replica-stall", strike=_stall_replica, cuts=False, breaks=False),
    Fault(name="node-kill", strike=_kill_node),
    Fault(name="node-term", strike=_terminate_node),
    Fault(name="head-kill", strike=_kill_head),
    Fault(name="models-change", strike=_change_models, cuts=False, breaks=False),
    Fault(name="model-update", strike=_update_model, cuts=False, breaks=False),
    Fault(name="gateway-update", strike=_update_gateway, cuts=False, breaks=False),
)
assert len(NODES) == REPLICAS


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
