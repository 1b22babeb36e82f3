"""Callers as users write them, with the real openai client; every call's end is noted."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx
import openai

MODEL = "sim"
PROMPTS = tuple(f"document {number}" for number in range(12))
_PAUSE_S = 0.3


@dataclass(frozen=True, kw_only=True)
class Call:
    """What came of one call."""

    patient: bool
    """Whether the client retries as it does by default."""
    stream: bool
    outcome: str
    """ok, wrong, silent (a stream that just ended), broken (one that ended with an error), cut (the
    connection was closed), or the status of a refusal."""
    began_s: float
    seconds: float
    detail: str = ""


@dataclass(kw_only=True)
class Load:
    """Callers that call until told to stop."""

    url: str
    expected: dict[str, str]
    """The text of each prompt; empty while it is being found out."""
    max_tokens: int = 96
    calls: list[Call] = field(default_factory=list)
    _stop: bool = False

    async def run(self, patient: int, impatient: int, seed: int) -> None:
        """Call with so many callers of each sort until `stop`."""
        rng = random.Random(seed)
        callers = [(True, i) for i in range(patient)] + [(False, i) for i in range(impatient)]
        await asyncio.gather(
            *(self._caller(kind, i % 2 == 0, rng.randrange(10**9)) for kind, i in callers)
        )

    def stop(self) -> None:
        """No new calls; those in flight end."""
        self._stop = True

    async def learn(self) -> None:
        """Find out what every prompt's text is on an undisturbed fleet."""
        async with self._client(True) as client:
            texts = await asyncio.gather(*(self._whole(client, prompt) for prompt in PROMPTS))
        self.expected.update(zip(PROMPTS, texts, strict=True))

    async def _caller(self, patient: bool, stream: bool, seed: int) -> None:
        rng = random.Random(seed)
        async with self._client(patient) as client:
            while not self._stop:
                await self._call(client, rng.choice(PROMPTS), patient, stream)

    def _client(self, patient: bool) -> openai.AsyncOpenAI:
        retries = openai.DEFAULT_MAX_RETRIES if patient else 0
        return openai.AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key="none", max_retries=retries, timeout=90
        )

    async def _call(
        self, client: openai.AsyncOpenAI, prompt: str, patient: bool, stream: bool
    ) -> None:
        began_s = time.monotonic()
        detail, text = "", None
        try:
            text = await (self._streamed if stream else self._whole)(client, prompt)
            outcome = "silent" if text is None else "ok"
            if text is not None and text != self.expected[prompt]:
                outcome, detail = "wrong", text[:60]
        except openai.APIStatusError as error:
            outcome, detail = str(error.status_code), str(error.message)[:120]
        except (openai.APIConnectionError, httpx.TransportError) as error:
            outcome, detail = "cut", type(error.__cause__ or error).__name__
        except openai.APIError as error:  # an error event in a stream
            outcome, detail = "broken", str(error.message)[:120]
        seconds = time.monotonic() - began_s
        self.calls.append(
            Call(
                patient=patient,
                stream=stream,
                outcome=outcome,
                began_s=began_s,
                seconds=seconds,
                detail=detail,
            )
        )
        if outcome != "ok":
            await asyncio.sleep(_PAUSE_S)

    async def _whole(self, client: openai.AsyncOpenAI, prompt: str) -> str:
        done = await client.completions.create(
            model=MODEL, prompt=prompt, max_tokens=self.max_tokens, seed=1
        )
        (choice,) = done.choices
        return choice.text

    async def _streamed(self, client: openai.AsyncOpenAI, prompt: str) -> str | None:
        """The text; `None` if the stream ended before its last chunk."""
        text, finished = "", False
        stream = await client.completions.create(
            model=MODEL, prompt=prompt, max_tokens=self.max_tokens, seed=1, stream=True
        )
        async for chunk in stream:
            for choice in chunk.choices:
                text += choice.text
                finished = finished or choice.finish_reason is not None
        return text if finished else None


def outcomes(calls: Sequence[Call]) -> str:
    """How many of each, in short."""
    counts = Counter(call.outcome for call in calls)
    return " ".join(f"{name} {count}" for name, count in sorted(counts.items()))
