"""When the requests of an open loop are due, whatever becomes of those before them."""

from __future__ import annotations

import random
from typing import Literal

from raydiff.errors import UsageError, invalid

Arrivals = Literal["poisson", "constant"]


def arrival_times(
    count: int, rate_per_s: float, arrivals: Arrivals = "poisson", seed: int = 0
) -> tuple[float, ...]:
    """Seconds after the beginning at which each of `count` requests is due, ascending.

    `poisson` has independent exponential gaps, drawn from `seed`; `constant` equal ones.

    Raises:
        UsageError: the rate is not above 0.
    """
    if not rate_per_s > 0:
        raise UsageError(invalid("rate", expected="requests/s above 0", got=rate_per_s), "rate")
    if arrivals == "constant":
        return tuple(i / rate_per_s for i in range(count))
    chance = random.Random(seed)
    due, times = 0.0, []
    for _ in range(count):
        times.append(due)
        due += chance.expovariate(rate_per_s)
    return tuple(times)
