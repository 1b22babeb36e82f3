"""From the engine's thread to one consumer, however slow."""

from __future__ import annotations

import asyncio
import threading

from raydiff.request import Completion, Event, TokenLogprob, Usage
from raydiff.serve.bridge import StreamBridge

COUNT = 3_000


def event(number: int) -> Event:
    usage = Usage(prompt_tokens=1, completion_tokens=number + 1, forwards=number + 1)
    return Event(
        request_id="r",
        text="x",
        logprobs=(TokenLogprob(token_id=number, logprob=-1.0),),
        usage=usage,
        snapshot=f"snapshot {number}",
    )


def last_event() -> Event:
    usage = Usage(prompt_tokens=1, completion_tokens=COUNT, forwards=COUNT)
    text = "x" * COUNT
    done = Completion(request_id="r", text=text, token_ids=(), finish_reason="length", usage=usage)
    return Event(request_id="r", completion=done, usage=usage, snapshot=text)


async def test_a_consumer_that_sleeps_finds_one_event_with_all_text_and_the_last_state() -> None:
    """However many were emitted: of text and log-probabilities nothing is lost, of snapshots and
    usage the latest is kept."""
    bridge = StreamBridge()
    for number in range(COUNT):
        bridge.on_event(event(number))
    events = bridge.events()
    first = await anext(events)
    assert first.text == "x" * COUNT
    assert [p.token_id for p in first.logprobs] == list(range(COUNT))
    assert first.snapshot == f"snapshot {COUNT - 1}"
    assert first.usage is not None
    assert first.usage.completion_tokens == COUNT
    bridge.on_event(last_event())
    assert [e.snapshot async for e in events] == ["x" * COUNT]


async def test_whatever_the_consumer_reads_between_the_text_is_whole() -> None:
    bridge = StreamBridge()

    def emit() -> None:
        for number in range(COUNT):
            bridge.on_event(event(number))
        bridge.on_event(last_event())

    thread = threading.Thread(target=emit)
    thread.start()
    text, tokens = "", 0
    async for found in bridge.events():
        text += found.text
        tokens += len(found.logprobs)
        await asyncio.sleep(0.001)
    thread.join()
    assert (text, tokens) == ("x" * COUNT, COUNT)
