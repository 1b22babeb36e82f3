"""A worker's side of the coordinator: its beats, the run's lock, and pauses for others."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import uuid
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError

from raydiff.corpus.coordinator import Beat, WorkerIdentity
from raydiff.corpus.gate import CallGate
from raydiff.corpus.pulse import Pulse
from raydiff.errors import ClusterError

BEAT_S = 1.0
_ANSWER_S = 10.0
_PATIENCE_S = 120.0
"""How long a coordinator that is starting afresh is waited for."""


class Presence:
    """Makes a worker known to the run's coordinator; a `RunLock`."""

    def __init__(self, coordinator: Any, pulse: Pulse) -> None:
        context = ray.get_runtime_context()
        self.identity = WorkerIdentity(
            worker_id=uuid.uuid4().hex,
            actor_id=context.get_actor_id() or "",
            pid=os.getpid(),
            node_id=context.get_node_id(),
        )
        self._actor = context.current_actor
        self._coordinator = coordinator
        self._pulse = pulse
        self._pauses: asyncio.Task[None] | None = None
        # A thread, because the event loop may be what is stuck.
        threading.Thread(target=self._beat_for_ever, name="beat", daemon=True).start()

    def start_pausing(self, gate: CallGate) -> None:
        """Hold the gate while a suspect elsewhere needs quiet. Call it on the gate's loop."""
        if self._pauses is None:
            self._pauses = asyncio.get_running_loop().create_task(self._pause_for_ever(gate))

    async def acquire(self, *, quiet: bool) -> bool:
        """As `RunLock`.

        Raises:
            ClusterError: the coordinator is gone.
        """
        while True:
            certain = await self._ask(self._coordinator.acquire, quiet)
            if certain is not None:
                return bool(certain)
            self._pulse.worker_on()

    async def release(self) -> None:
        """As `RunLock`."""
        await self._ask(self._coordinator.release)

    async def guidance(self) -> tuple[Any, int]:
        """What `Coordinator.guidance` knows."""
        answer: tuple[Any, int] = await self._ask(self._coordinator.guidance)
        return answer

    async def _ask(self, method: Any, *arguments: Any) -> Any:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return await method.remote(self.identity.worker_id, *arguments)
            except RayError as error:
                if time.monotonic() > deadline:
                    raise ClusterError(
                        f"The run's coordinator did not answer for {_PATIENCE_S:.0f} s. Run the "
                        "same command again to continue."
                    ) from error
            await asyncio.sleep(BEAT_S)

    def _beat_for_ever(self) -> None:
        while True:
            beat = Beat(
                identity=self.identity,
                shards=self._pulse.ages(),
                pauses=self._pauses is not None,
            )
            try:
                ray.get(self._coordinator.beat.remote(beat, self._actor), timeout=_ANSWER_S)
            except RayError:
                pass  # it is starting afresh, or the run is over and this process with it
            except Exception:
                return  # Ray is shut down
            time.sleep(BEAT_S)

    async def _pause_for_ever(self, gate: CallGate) -> None:
        while True:
            # A worker that no longer pauses would keep every suspect of the run waiting.
            with suppress(ClusterError):
                await self._pause_as_told(gate)

    async def _pause_as_told(self, gate: CallGate) -> None:
        known = -1
        while True:
            known, pause = await self._ask(self._coordinator.pause_for, known)
            if pause:
                async with gate.paused():
                    known = await self._keep_still(known)

    async def _keep_still(self, known: int) -> int:
        """Until the pause is over; returns the state after it."""
        pause = True
        while pause:
            await self._ask(self._coordinator.drained, known)
            self._pulse.worker_on()
            known, pause = await self._ask(self._coordinator.pause_for, known)
        return known
