"""Costs: how long forwards take over their size, learned from the forwards that ran. No torch.

Sizes are gathered in powers of two, each with a moving mean of size and seconds; what lies between
two of them is interpolated. On a device bound by memory the means lie on a flat line, on a CPU on
a rising one, and no one has to say which it is.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise

_WEIGHT = 0.2
"""Of the newest forward in a moving mean."""
_OUTLIER = 2.0
"""A mean is at most so many times the newest forward, and the newest counts for at most so many
times the mean: the first forward of a shape, or one that the machine held up, is soon forgotten."""

Point = tuple[float, float]


class Costs:
    """Seconds of forwards over their size, by kind and shape."""

    def __init__(self) -> None:
        self._means: dict[Hashable, dict[int, Point]] = {}
        self._curves: dict[Hashable, tuple[Point, ...]] = {}

    def observe(self, key: Hashable, size: int, seconds: float) -> None:
        """A forward of `size` > 0 took so long."""
        means = self._means.setdefault(key, {})
        bucket = size.bit_length()
        known = means.get(bucket)
        means[bucket] = (float(size), seconds) if known is None else _mixed(known, size, seconds)
        self._curves.pop(key, None)

    def seconds(self, key: Hashable, size: float) -> float | None:
        """Expected seconds; `None` before the first forward of that key.

        Beyond the smallest and the largest that ran, in proportion to them.
        """
        curve = self._curve(key)
        return _at(curve, size) if curve else None

    def most(
        self, key: Hashable, size: int, limit: int, share: float, beside_s: float = 0.0
    ) -> int:
        """The largest size up to `limit` that takes longer than `size` does by at most `share` of
        that, or of `beside_s`.

        Without a forward to go by, as if seconds grew in proportion.
        """
        curve = self._curve(key)
        if not curve:
            curve, beside_s = ((1.0, 1.0),), 0.0
        alone = _at(curve, size)
        allowed = alone + share * max(alone, beside_s)
        low, high = size, max(size, limit)
        while low < high:
            middle = (low + high + 1) // 2
            if _at(curve, middle) <= allowed:
                low = middle
            else:
                high = middle - 1
        return low

    def least(self, key: Hashable, size: int, loss: float, *, tries: bool = True) -> int:
        """The smallest size that is done at no less than 1 - `loss` times the speed of `size`,
        among sizes no smaller than the smallest that ran.

        With `tries`, `size` itself while none like it ran, then once half of it; without, a size
        beyond all that ran is taken to be as fast as the largest that did.
        """
        curve = self._curve(key)
        if not curve or not loss or size <= curve[0][0]:
            return size
        if size >= 2 * curve[-1][0]:
            if tries:
                return size
            size = max(1, int(curve[-1][0]))
        if tries and (size // 2).bit_length() not in self._means[key]:
            return max(1, size // 2)
        wanted = (1.0 - loss) * size / _at(curve, size)
        low, high = max(1, int(curve[0][0])), size
        while low < high:
            middle = (low + high) // 2
            if middle / _at(curve, middle) >= wanted:
                high = middle
            else:
                low = middle + 1
        return high

    def _curve(self, key: Hashable) -> tuple[Point, ...]:
        """The means, in order, seconds never falling."""
        curve = self._curves.get(key)
        if curve is None:
            highest = 0.0
            points: list[Point] = []
            for size, seconds in sorted(self._means.get(key, {}).values()):
                highest = max(highest, seconds)
                points.append((size, highest))
            curve = self._curves[key] = tuple(points)
        return curve


def _mixed(known: Point, size: int, seconds: float) -> Point:
    mean_size, mean_s = known
    mean_s = min(mean_s, _OUTLIER * seconds)
    seconds = min(seconds, _OUTLIER * mean_s)
    return (mean_size + _WEIGHT * (size - mean_size), mean_s + _WEIGHT * (seconds - mean_s))


def _at(curve: tuple[Point, ...], size: float) -> float:
    first, last = curve[0], curve[-1]
    if size <= first[0]:
        return first[1] * size / first[0]
    for (x0, y0), (x1, y1) in pairwise(curve):
        if size <= x1:
            return y0 + (y1 - y0) * (size - x0) / (x1 - x0)
    return last[1] * size / last[0]
