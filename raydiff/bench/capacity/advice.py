"""Which shard size and how many replicas suit a corpus."""

from __future__ import annotations

import math

SHARD_S = 30.0
"""Seconds of a replica's work in one shard: what a kill can cost, against a commit's fixed cost."""
SHARDS_PER_REPLICA = 8
"""At least so many, so that the last shards end together."""
MOST_SHARDS = 1_000_000
"""What the plan, the listing and the driver were checked with."""
LEAST_ROWS = 16
MOST_ROWS = 65_536


def advise_replicas(replica_hours_high: float, within_hours: float) -> int:
    """Replicas that are done in time, even at the upper end of the estimate."""
    return max(1, math.ceil(replica_hours_high / within_hours))


def advise_shard_rows(documents: int, documents_per_s: float, replicas: int) -> tuple[int, str]:
    """Rows of a shard (a power of two) and why; `documents_per_s` is one replica's."""
    by_time = documents_per_s * SHARD_S
    by_balance = documents / (replicas * SHARDS_PER_REPLICA)
    least = documents / MOST_SHARDS
    wanted = min(by_time, by_balance)
    why = (
        f"about {SHARD_S:g} s of a replica's work"
        if by_time <= by_balance
        else f"{SHARDS_PER_REPLICA} shards for each replica"
    )
    if wanted < least:
        wanted, why = least, f"at most {MOST_SHARDS:,} shards"
        return _clamped(2 ** math.ceil(math.log2(wanted))), why
    return _clamped(2 ** math.floor(math.log2(max(1.0, wanted)))), why


def _clamped(rows: int) -> int:
    return min(MOST_ROWS, max(LEAST_ROWS, rows))
