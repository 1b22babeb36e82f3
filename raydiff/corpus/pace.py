"""Keeps one worker at the pace of the replicas. Knows asyncio, not Ray."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from raydiff.corpus.gate import CallGate
from raydiff.corpus.intake import Intake
from raydiff.corpus.sizing import CallTimes, Fleet, Sizer
from raydiff.request import Completion, GenerationRequest

if TYPE_CHECKING:
    from raydiff.corpus.sending import Generator

_log = logging.getLogger(__name__)

FOLLOW_S = 2.0
"""Between questions after the replicas."""

Guidance = Callable[[], Awaitable[tuple[Fleet | None, int]]]
"""Tells the replicas as far as they are known, and how many workers share them."""


class Pace:
    """A `Generator` that times its calls, and sizes the gate and the intake by them."""

    def __init__(
        self,
        generator: Generator,
        *,
        gate: CallGate,
        intake: Intake,
        sizer: Sizer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._generator = generator
        self._gate = gate
        self._intake = intake
        self._sizer = sizer
        self._clock = clock
        self._following: asyncio.Task[None] | None = None

    async def generate(
        self, requests: Sequence[GenerationRequest], *, timeout_s: float
    ) -> list[Completion]:
        """As the generator does."""
        self._intake.look()
        began_s = self._clock()
        full = self._gate.running >= self._gate.calls
        completions = await self._generator.generate(requests, timeout_s=timeout_s)
        times = CallTimes.of(completions, self._clock() - began_s)
        if full and times is not None:
            self._sizer.observe(times)
            self._apply()
        return completions

    def start_following(self, guidance: Guidance) -> None:
        """`follow` in a task of its own, on the running loop; once."""
        if self._following is None:
            self._following = asyncio.get_running_loop().create_task(self.follow(guidance))

    async def follow(self, guidance: Guidance) -> None:
        """Take over what is known of the replicas, again and again, until cancelled."""
        while True:
            try:
                fleet, workers = await guidance()
            except Exception as error:
                # Without guidance the worker goes on as it does.
                _log.debug("No guidance: %r", error)
            else:
                if fleet is not None:
                    self._sizer.follow(fleet, workers)
                    self._apply()
            await asyncio.sleep(FOLLOW_S)

    def _apply(self) -> None:
        if self._sizer.calls != self._gate.calls:
            self._gate.resize(self._sizer.calls)
        self._intake.look()
