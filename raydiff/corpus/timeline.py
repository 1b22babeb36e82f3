"""Throughput over a run's time, from when its shards were committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

BINS = 60
MIN_PAUSE_S = 60.0
"""Shorter gaps between commits are never taken for a time in which the run stood still."""
_PAUSE_GAPS = 20.0
"""Nor are gaps shorter than this many median gaps: long shards commit seldom."""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Documents and output tokens by equal intervals of the time in which the run went on.

    What lies between two starts of a run is left out, so that a night's pause is no slump.
    """

    interval_s: float
    documents: tuple[int, ...]
    output_tokens: tuple[int, ...]

    @property
    def tokens_per_s(self) -> list[float]:
        """Output tokens/s of each interval."""
        return [tokens / self.interval_s for tokens in self.output_tokens]

    @property
    def documents_per_s(self) -> list[float]:
        """Documents/s of each interval."""
        return [documents / self.interval_s for documents in self.documents]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "interval_s": max(round(self.interval_s, 6), 1e-6),
            "documents": list(self.documents),
            "output_tokens": list(self.output_tokens),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Timeline:
        """The inverse of `to_dict`."""
        return cls(
            interval_s=values["interval_s"],
            documents=tuple(values["documents"]),
            output_tokens=tuple(values["output_tokens"]),
        )


def timeline(
    started_s: ArrayLike,
    finished_s: ArrayLike,
    documents: ArrayLike,
    output_tokens: ArrayLike,
    bins: int = BINS,
) -> Timeline | None:
    """The timeline of shards with these Unix times and amounts; `None` if none took any time.

    A shard's amounts are spread evenly from its start to its commit: counted at the commit alone,
    long shards would make a comb of a steady run.
    """
    finish = np.asarray(finished_s, dtype=np.float64)
    start = np.minimum(np.asarray(started_s, dtype=np.float64), finish)
    if not finish.size or finish.max() <= start.min():
        return None
    moments, active = _active_time(start, finish)
    begins = np.interp(start, moments, active)
    ends = np.interp(finish, moments, active)
    edges = np.linspace(0.0, active[-1], bins + 1)
    return Timeline(
        interval_s=float(active[-1] / bins),
        documents=_spread(begins, ends, documents, edges),
        output_tokens=_spread(begins, ends, output_tokens, edges),
    )


def _active_time(start: Any, finish: Any) -> tuple[Any, Any]:
    """Unix times, and the seconds that the run had been going on until each."""
    moments = np.unique(np.concatenate([start, finish]))
    gaps = np.diff(moments)
    pause = max(MIN_PAUSE_S, _PAUSE_GAPS * float(np.median(gaps)))
    # A gap with a shard in hand is work, however long.
    in_hand = np.cumsum(
        np.bincount(np.searchsorted(moments, start), minlength=moments.size)
        - np.bincount(np.searchsorted(moments, finish), minlength=moments.size)
    )[:-1]
    worked = np.where((gaps > pause) & (in_hand == 0), 0.0, gaps)
    return moments, np.concatenate([[0.0], np.cumsum(worked)])


def _spread(begins: Any, ends: Any, amounts: ArrayLike, edges: Any) -> tuple[int, ...]:
    """Amounts by interval, each spread over its own time; the sum is exact.

    The amount done by time t is a sum of ramps, piecewise linear between the shards' ends.
    """
    weights = np.asarray(amounts, dtype=np.float64)
    width = np.maximum(ends - begins, 1e-9)
    order_b, order_e = np.argsort(begins), np.argsort(ends)
    done = _ramps(edges, begins[order_b], (weights / width)[order_b])
    done -= _ramps(edges, ends[order_e], (weights / width)[order_e])
    done[-1] = weights.sum()
    whole = np.rint(np.maximum.accumulate(done)).astype(np.int64)
    return tuple(np.diff(whole, prepend=0)[1:].tolist()) if whole.size > 1 else ()


def _ramps(at: Any, starts: Any, slopes: Any) -> Any:
    """Sum over ramps of slope * max(0, t - start), for each t; `starts` is sorted."""
    count = np.searchsorted(starts, at, side="right")
    slope = np.concatenate([[0.0], np.cumsum(slopes)])[count]
    offset = np.concatenate([[0.0], np.cumsum(slopes * starts)])[count]
    return slope * at - offset
