"""A worker's side of the results that the shards of a run share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ray.exceptions import RayError

from raydiff.corpus.dedupe import Answer


class RunResults:
    """`SharedResults` of the run's coordinator. While that is gone, every shard is for itself: the
    same text gives the same result wherever it is generated."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator

    async def claim(self, owner: str, keys: Sequence[bytes]) -> list[Answer]:
        """As `SharedResults`; one call for all keys."""
        try:
            return list(await self._coordinator.claim.remote(owner, list(keys)))
        except RayError:
            return ["yours"] * len(keys)

    async def settle(
        self, owner: str, results: Mapping[bytes, bytes], failed: Sequence[bytes]
    ) -> None:
        """As `SharedResults`."""
        if not (results or failed):
            return
        try:
            await self._coordinator.settle.remote(owner, dict(results), list(failed))
        except RayError:
            return
