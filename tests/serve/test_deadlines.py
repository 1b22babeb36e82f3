"""The gateway's own watch on deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from raydiff.errors import DeadlineExceeded
from raydiff.serve.deadlines import all_within, within


class Source:
    """Rows without end, which come `delay_s` apart."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.closed = False

    async def rows(self) -> AsyncIterator[int]:
        try:
            for row in range(10**6):
                yield row
                await asyncio.sleep(self.delay_s)
        finally:
            self.closed = True


async def test_what_is_late_is_cancelled() -> None:
    source = Source(60)

    async def read() -> None:
        async for _ in source.rows():
            pass

    with pytest.raises(DeadlineExceeded):
        await within(read(), 0.01)


async def test_a_timeout_of_another_kind_stays_what_it_is() -> None:
    async def fails() -> None:
        raise TimeoutError("of a socket")

    with pytest.raises(TimeoutError, match="socket"):
        await within(fails(), 60)


@pytest.mark.parametrize("delay_s", [60, 0])
async def test_rows_come_until_the_deadline_and_then_their_source_is_closed(
    delay_s: float,
) -> None:
    """Whether it is silent or never stops; rows are read as a stream's are, each by a task."""
    source = Source(delay_s)
    reader = all_within(source.rows(), 0.05)
    rows: list[int] = []

    async def read_all() -> None:
        while True:
            rows.append(await asyncio.create_task(anext(reader)))  # type: ignore[arg-type]

    with pytest.raises(DeadlineExceeded):
        await read_all()
    assert rows == list(range(len(rows)))
    assert rows
    assert source.closed


async def test_whoever_stops_reading_closes_the_source() -> None:
    source = Source(0)
    reader = all_within(source.rows(), 60)
    assert await anext(reader) == 0
    await reader.aclose()  # type: ignore[attr-defined]
    assert source.closed
