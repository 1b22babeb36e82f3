"""The driver's eye on its workers: what hangs is named in the log, killed and begun elsewhere."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raydiff.config import CorpusSettings
from raydiff.corpus.coordinator import Coordinator, Stuck

_CALL_GRACE_S = 30.0
"""A call in flight has its own deadline; a shard is not stuck before that has passed."""
_LOOK_S = 2.0
_ANSWER_S = 30.0
_CONCURRENCY = 100_000
"""Questions to the coordinator that may wait at a time: a few for each worker."""

_log = logging.getLogger(__name__)


@contextmanager
def supervised(
    settings: CorpusSettings, say: Callable[[str], None] = _log.warning
) -> Iterator[Any]:
    """The run's coordinator, with a watchdog over the workers that tell it of their shards.

    `say` takes the lines about stuck workers; the log by default.
    """
    coordinator = start_coordinator()
    done = threading.Event()
    watchdog = threading.Thread(
        target=_watch, args=(coordinator, settings, say, done), name="watchdog", daemon=True
    )
    watchdog.start()
    try:
        yield coordinator
    finally:
        done.set()
        watchdog.join()
        with suppress(RayError):
            ray.kill(coordinator)


def start_coordinator() -> Any:
    """A coordinator's actor, beside the driver if there is room: they end together."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    actor = ray.remote(Coordinator).options(
        num_cpus=0,
        max_restarts=-1,
        max_concurrency=_CONCURRENCY,
        scheduling_strategy=here,
    )
    return actor.remote()


def _watch(
    coordinator: Any,
    settings: CorpusSettings,
    say: Callable[[str], None],
    done: threading.Event,
) -> None:
    silent_s = settings.stuck_after_s
    still_s = max(settings.stuck_after_s, settings.call_timeout_s + _CALL_GRACE_S)
    while not done.wait(min(_LOOK_S, settings.stuck_after_s / 4)):
        try:
            found = ray.get(coordinator.stuck.remote(silent_s, still_s), timeout=_ANSWER_S)
        except RayError:
            continue  # it is starting afresh
        except Exception:
            return  # Ray is shut down
        for stuck in found:
            say(describe(stuck))
            with suppress(RayError, ValueError):  # gone by itself, and no longer known
                ray.kill(stuck.actor, no_restart=False)


def describe(stuck: Stuck) -> str:
    """One line about a stuck worker."""
    what = "was not heard of" if stuck.silent else "did not get on"
    shards = ", ".join(stuck.shards)
    return (
        f"The {stuck.identity} {what} for {stuck.seconds:.0f} s with shard {shards} in hand. "
        "It is killed, and its shards are begun again."
    )
