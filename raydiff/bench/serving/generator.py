"""A process that generates load, and says what it took of a processor to do so."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raydiff.bench.serving.callers import HttpCaller, ReplicaCaller
from raydiff.bench.serving.loads import Caller, Outcome, generate_load
from raydiff.bench.serving.remote import Handler
from raydiff.config import ModelSettings, ServeSettings
from raydiff.families import load_spec

if TYPE_CHECKING:
    from raydiff.bench.serving.engines import AllAtOnce, EngineReplicas
    from raydiff.engine.counts import Work


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a generator calls."""

    contender: str
    model: ModelSettings
    url: str = ""
    """Of contenders that are called by HTTP."""
    key: str | None = None
    address: str = ""
    """Of the cluster of an app that is called through its handle."""
    app_name: str = ""


@dataclass(frozen=True, kw_only=True)
class Generated:
    """What came of one load in one process."""

    outcomes: list[Outcome]
    cpu_s: float
    """Processor seconds of the process; where it hosts the engine, the engine's too."""
    work: Work | None = None
    """Of an engine in the process."""


@contextmanager
def generator(target: Target) -> Iterator[Handler]:
    """Answers a Load with what came of it (`Generated`)."""
    if target.contender == "bare":
        from raydiff.bench.serving.engines import AllAtOnce

        with AllAtOnce.loaded(target.model) as bare:
            yield lambda load: _measured(lambda: bare.run(load), bare)
        return
    with _cluster(target), asyncio.Runner() as runner, _engine(target) as engine:
        caller = runner.run(_caller(target, engine))
        try:
            yield lambda load: _measured(lambda: runner.run(generate_load(caller, load)), engine)
        finally:
            runner.run(caller.close())


@contextmanager
def _cluster(target: Target) -> Iterator[None]:
    """A connection to the cluster of an app that is called through its handle."""
    if target.contender != "handle":
        yield
        return
    from raydiff.launch.cluster import join_cluster

    os.environ["RAY_ADDRESS"] = target.address
    cluster = join_cluster(cpus=1, endpoint=ServeSettings(port=0), metrics_port=None)
    try:
        yield
    finally:
        cluster.leave()


@contextmanager
def _engine(target: Target) -> Iterator[EngineReplicas | None]:
    if target.contender != "engine":
        yield None
        return
    from raydiff.bench.serving.engines import EngineReplicas

    with EngineReplicas.loaded(target.model) as engine:
        yield engine


async def _caller(target: Target, engine: EngineReplicas | None) -> Caller:
    if engine is not None:
        return ReplicaCaller(engine, load_spec(target.model.model))
    if target.contender != "handle":
        return HttpCaller(target.url, target.model.served_name, target.key)
    from raydiff.client import Client

    client = Client.connect(target.model.served_name, target.app_name)
    return ReplicaCaller(client, load_spec(target.model.model))


def _measured(
    run: Callable[[], list[Outcome]], engine: EngineReplicas | AllAtOnce | None
) -> Generated:
    before = engine.work if engine is not None else None
    started_s = time.process_time()
    outcomes = run()
    cpu_s = time.process_time() - started_s
    work = engine.work - before if engine is not None and before is not None else None
    return Generated(outcomes=outcomes, cpu_s=cpu_s, work=work)
