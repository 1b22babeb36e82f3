"""`raydiff bench fleet`: what a replica costs beside its forwards, and how many a machine holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raydiff.bench.fleet.host import Fleet, Resize, WorkDone, fleet_host
from raydiff.bench.report import circumstances
from raydiff.bench.serving.cpu import cpu_by_role, descendants, processes, role_of
from raydiff.bench.serving.generator import Generated, Target, generator
from raydiff.bench.serving.loads import Load, make_asks
from raydiff.bench.serving.remote import Remote
from raydiff.config import EngineSettings, ModelSettings, usable_cores
from raydiff.engine.counts import Work
from raydiff.errors import UsageError, invalid
from raydiff.families import load_spec
from raydiff.simulated import simulated_model

OK = 200
_REPLICA_CPUS = 0.01
_SPARE_CPUS = 4
_IN_FLIGHT = 1.5
"""Requests in flight over rows, so that rows stay full although replicas are chosen by chance."""
_KIB = 1024
SATURATED = 0.95


@dataclass(frozen=True, kw_only=True)
class FleetBench:
    """Settings of one run."""

    model: str
    replicas: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    prompts_per_call: tuple[int, ...] = (1, 32)
    way: str = "handle"
    """How they are called: "handle", or "http" through the gateway."""
    seconds: float = 15.0
    """Of each load, about."""
    idle_s: float = 10.0

    def __post_init__(self) -> None:
        simulated_model(self.model)
        if self.way not in ("handle", "http"):
            raise UsageError(invalid("way", expected="handle or http", got=self.way), "way")

    @property
    def rows(self) -> int:
        return simulated_model(self.model).rows

    @property
    def served(self) -> ModelSettings:
        return ModelSettings(
            model=self.model,
            num_cpus=_REPLICA_CPUS,
            min_replicas=self.replicas[0],
            max_replicas=self.replicas[0],
            engine=EngineSettings(max_rows=self.rows),
        )


def run_fleet_bench(
    bench: FleetBench, progress: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Measure fleets of all sizes, each under each kind of call.

    Raises:
        ClusterError: no cluster can be started, or a process died.
    """
    cases: list[dict[str, Any]] = []
    sizes: list[dict[str, Any]] = []
    fleet = Fleet(model=bench.served, cpus=_SPARE_CPUS)
    with Remote(fleet_host, fleet) as host:
        host.receive()
        app = host.ask("app")
        target = Target(
            contender=bench.way,
            model=bench.served,
            url=app.url,
            address=app.address,
            app_name=app.app_name,
        )
        with Remote(generator, target) as load:
            load.receive()
            for replicas in bench.replicas:
                sizes.append(_size(bench, host, replicas))
                progress(f"{replicas} replicas: {sizes[-1]['pss_mib_per_replica']:.0f} MiB each")
                for prompts in bench.prompts_per_call:
                    cases.append(_case(bench, host, load, replicas, prompts))
                    progress(_line(cases[-1]))
    _add_efficiency(cases)
    return {
        "bench": "fleet",
        "circumstances": circumstances(),
        "model": bench.model,
        "way": bench.way,
        "cores": usable_cores(),
        "sizes": sizes,
        "cases": cases,
    }


def _size(bench: FleetBench, host: Remote[Fleet], replicas: int) -> dict[str, Any]:
    """Bring the fleet to a size; what that takes, and what it costs to do nothing."""
    before = cpu_by_role(host.pid, processes())
    seconds = host.ask(Resize(replicas=replicas))
    started = cpu_by_role(host.pid, processes())
    time.sleep(bench.idle_s)
    idle = _difference(started, cpu_by_role(host.pid, processes()))
    return {
        "replicas": replicas,
        "resize_s": seconds,
        "resize_cpu_s": sum(_difference(before, started).values()),
        "idle_cores": sum(idle.values()) / bench.idle_s,
        "idle_replica_cores": idle.get("replica", 0.0) / bench.idle_s / replicas,
        "pss_mib_per_replica": replica_pss_mib(host.pid) / replicas,
    }


def _case(
    bench: FleetBench, host: Remote[Fleet], load: Remote[Target], replicas: int, prompts: int
) -> dict[str, Any]:
    spec = load_spec(bench.model)
    model = simulated_model(bench.model)
    clients = max(1, int(_IN_FLIGHT * replicas * bench.rows / prompts))
    ideal_per_s = replicas * model.rows / model.seconds
    requests = max(3 * clients, int(ideal_per_s * bench.seconds / prompts))
    texts = tuple(f"prompt {i}" for i in range(997))
    ids = tuple(tuple(text.encode()) for text in texts)
    asks = make_asks(texts, ids, requests, prompts)
    work, cpu, began_s = host.ask(WorkDone()), _cpu(host), time.monotonic()
    done: Generated = load.ask(Load(asks=asks, clients=clients, begin_s=began_s))
    seconds = time.monotonic() - began_s
    used = _difference(cpu, _cpu(host))
    work = host.ask(WorkDone()) - work
    return {
        "replicas": replicas,
        "prompts_per_call": prompts,
        "clients": clients,
        "calls": requests,
        "failed": sum(outcome.status != OK for outcome in done.outcomes),
        "block_length": spec.block_length,
        "rows_per_s": steady_rows_per_s(done, clients),
        "cores": sum(used.values()) / seconds,
        "generator_cores": done.cpu_s / seconds,
        **_costs(used, requests, work),
    }


def _costs(used: Mapping[str, float], calls: int, work: Work) -> dict[str, Any]:
    return {
        "cpu_ms_per_call": 1000 * sum(used.values()) / calls,
        "replica_cpu_ms_per_forward": 1000 * used.get("replica", 0.0) / max(1, work.forwards),
        "cpu_ms_per_forward": 1000 * sum(used.values()) / max(1, work.forwards),
        "rows_per_forward": work.rows_per_forward,
        "cpu_s_by_role": dict(sorted(used.items())),
    }


def steady_rows_per_s(done: Generated, clients: int) -> float:
    """Rows done per second between the first `clients` calls and the last: all clients are busy."""
    ends = sorted((o.done_s, o.prompts) for o in done.outcomes if o.status == OK)
    steady = ends[clients:-clients] if len(ends) >= 3 * clients else ends
    if len(steady) < 2:
        return 0.0
    rows = sum(prompts for _, prompts in steady[1:])
    return rows / (steady[-1][0] - steady[0][0])


def replica_pss_mib(root: int) -> float:
    """Memory of all replicas of a process tree, what is shared counted in parts."""
    found = processes()
    total = 0
    for pid in descendants(root, found):
        if role_of(found[pid].title) == "replica":
            total += _pss_kib(pid)
    return total / _KIB


def _pss_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:  # it has ended
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _cpu(host: Remote[Fleet]) -> dict[str, float]:
    return cpu_by_role(host.pid, processes())


def _difference(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {role: max(0.0, after[role] - before.get(role, 0.0)) for role in after}


def _add_efficiency(cases: Sequence[dict[str, Any]]) -> None:
    """Throughput over what as many of the smallest fleet would do, and whether cores were left."""
    for case in cases:
        first = next(c for c in cases if c["prompts_per_call"] == case["prompts_per_call"])
        linear = first["rows_per_s"] / first["replicas"] * case["replicas"]
        case["efficiency"] = case["rows_per_s"] / linear if linear else 0.0
        used = case["cores"] + case["generator_cores"]
        case["saturated"] = used >= SATURATED * usable_cores()


def _line(case: Mapping[str, Any]) -> str:
    return (
        f"{case['replicas']} replicas, {case['prompts_per_call']} prompts a call: "
        f"{case['rows_per_s']:.0f} rows/s on {case['cores']:.2f} cores"
    )
