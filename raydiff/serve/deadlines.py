"""The gateway's own watch on deadlines: a replica that is late, or far, does not make its answer
late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar, cast

from raydiff.errors import DeadlineExceeded

Result = TypeVar("Result")


async def within(awaitable: Awaitable[Result], timeout_s: float) -> Result:
    """The result, if it comes in time; otherwise what computes it is cancelled.

    Raises:
        DeadlineExceeded: it does not.
    """
    try:
        async with asyncio.timeout(timeout_s) as limit:
            return await awaitable
    except TimeoutError:
        if not limit.expired():
            raise
        raise _too_late(timeout_s) from None


async def all_within(rows: AsyncIterator[Result], timeout_s: float) -> AsyncIterator[Result]:
    """The rows that come in time; closing it closes `rows`.

    Raises:
        DeadlineExceeded: one does not.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    try:
        while loop.time() < deadline_s:
            try:
                async with asyncio.timeout_at(deadline_s) as limit:
                    row = await anext(rows)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if not limit.expired():
                    raise
                raise _too_late(timeout_s) from None
            yield row
        raise _too_late(timeout_s)
    finally:
        await cast("Any", rows).aclose()


def _too_late(timeout_s: float) -> DeadlineExceeded:
    return DeadlineExceeded(f"The request was not done within {timeout_s:.3g} s.")
