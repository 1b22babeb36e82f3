"""When a call to a replica is tried again, and what its failures mean."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass

from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import BackPressureError, RayServeException

from raydiff.errors import (
    ClusterError,
    DeadlineExceeded,
    EngineError,
    Overloaded,
    RaydiffError,
    ReplicaDied,
    RequestCancelled,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """When a call is tried again."""

    overloaded: bool = True
    """Wait and try again when queues are full; otherwise raise Overloaded at once."""
    first_backoff_s: float = 0.1
    max_backoff_s: float = 5.0
    max_deaths: int = 4
    """Replicas that may die while they serve one call, before the call itself is suspected."""
    max_outages: int = 4
    """Times that Serve may have no replica for the call."""
    stuck_floor_s: float | None = None
    """A replica that takes longer than this, and far longer than calls took lately, is taken to
    be stuck: the call is cancelled and tried elsewhere. `None` waits until the deadline."""


class Stuck(Exception):
    """A replica does not answer."""

    def __init__(self, replica: str, waited_s: float, usual_s: float) -> None:
        super().__init__(
            f"{replica} has not answered for {waited_s:.1f} s, where calls took up to "
            f"{usual_s:.1f} s lately. The call is cancelled and tried elsewhere."
        )


class Attempts:
    """One call's deadline, and what was tried before it."""

    def __init__(self, policy: RetryPolicy, timeout_s: float) -> None:
        self._policy = policy
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._failures = 0
        self._deaths = 0
        self._outages = 0
        self.stuck = 0
        """Replicas that did not answer."""
        self._last: Exception | None = None

    def left_s(self) -> float:
        """Seconds to the deadline.

        Raises:
            Overloaded: there are none, and the last attempt found the queue full.
            DeadlineExceeded: there are none.
        """
        left = self._deadline - time.monotonic()
        if left <= 0:
            if isinstance(self._last, Overloaded):
                raise self._last
            raise DeadlineExceeded(f"The request was not done within {self._timeout_s:.3g} s.")
        return left

    async def wait_after(self, error: Exception) -> None:
        """Sleep until the next attempt.

        Raises:
            RaydiffError: trying again would not help, or not in time.
        """
        if not self._is_passing(error):
            raise self.as_raydiff(error) from error
        self._failures += 1
        self._last = error
        delay = self._delay_s(error)
        if delay >= self.left_s():
            if isinstance(error, Overloaded):
                raise error
            message = f"No replica answered within {self._timeout_s:.3g} s."
            raise DeadlineExceeded(message) from error
        await asyncio.sleep(delay)

    def as_raydiff(self, error: Exception) -> RaydiffError:
        """The error as one of raydiff's tree."""
        if isinstance(error, RayTaskError):
            cause = error.cause
            if isinstance(cause, RaydiffError):
                return cause
            return EngineError(f"The replica failed: {type(cause).__name__}.")
        if is_death(error):
            reason = str(error) if isinstance(error, RaydiffError) else type(error).__name__
            return ReplicaDied(f"A replica died or went away: {reason}")
        if isinstance(error, RaydiffError):
            return error
        if isinstance(error, RayServeException):
            return ClusterError(f"No replica could be reached: {type(error).__name__}.")
        return EngineError(f"The call failed: {type(error).__name__}.")

    def _is_passing(self, error: Exception) -> bool:
        if isinstance(error, Overloaded):
            return self._policy.overloaded
        if isinstance(error, RequestCancelled | BackPressureError):
            return True
        if isinstance(error, Stuck):
            _log.warning("%s", error)
            self.stuck += 1
            return True
        if is_death(error):
            self._deaths += 1
            return self._deaths < self._policy.max_deaths
        if isinstance(error, RayServeException):
            self._outages += 1
            return self._outages < self._policy.max_outages
        return False

    def _delay_s(self, error: Exception) -> float:
        policy = self._policy
        backoff = min(policy.max_backoff_s, policy.first_backoff_s * 2.0 ** (self._failures - 1))
        if isinstance(error, Overloaded):
            backoff = max(backoff, min(error.retry_after_s, policy.max_backoff_s))
        return backoff * random.uniform(0.5, 1.5)


def is_death(error: Exception) -> bool:
    """Whether a replica that had the call went away, or its node, rather than user code failing."""
    if isinstance(error, ClusterError):
        return True
    is_task_error = isinstance(error, RayTaskError)
    return isinstance(error, RayError) and not is_task_error
