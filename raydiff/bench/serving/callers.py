"""Ways to the model: HTTP, the replicas' handle, an engine in this process."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol, cast

from raydiff.bench.serving.loads import Answer, Ask, Load
from raydiff.decoding import Decoding
from raydiff.errors import RaydiffError, UsageError
from raydiff.request import Completion, Event, GenerationRequest
from raydiff.spec import ModelSpec

if TYPE_CHECKING:
    import aiohttp

TIMEOUT_S = 600.0
BATCH_TIER = "flex"
"""OpenAI's service tier that stands for the batch lane."""

_DATA = b"data: "
_DONE = b"[DONE]"


class HttpCaller:
    """`POST /v1/completions`; connections are kept."""

    def __init__(self, url: str, model: str, key: str | None) -> None:
        """Call it inside the loop that it is used in.

        Raises:
            UsageError: aiohttp is not installed.
        """
        try:
            import aiohttp
        except ModuleNotFoundError as error:
            message = "bench serve needs the package aiohttp: pip install 'raydiff[bench]'."
            raise UsageError(message) from error
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._failures = (aiohttp.ClientError, TimeoutError)
        self._url = f"{url.rstrip('/')}/v1/completions"
        self._model = model
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
            headers=headers,
        )

    async def ask(self, ask: Ask, load: Load) -> Answer:
        body = json.dumps(body_of(ask, load, self._model)).encode()
        try:
            async with self._session.post(self._url, data=body) as response:
                if response.status != 200:
                    await response.read()
                    return Answer(status=response.status)
                if load.stream:
                    return await _read_stream(response)
                return whole_answer(await response.read())
        except self._failures:
            return Answer(status=0)

    async def close(self) -> None:
        await self._session.close()


class Replicas(Protocol):
    """`raydiff.client.Client`, or an engine that stands for it."""

    async def generate(
        self, requests: list[GenerationRequest], *, timeout_s: float
    ) -> list[Completion]: ...

    def stream(self, request: GenerationRequest, *, timeout_s: float) -> AsyncIterator[Event]: ...


class ReplicaCaller:
    """The calls that the gateway makes, without HTTP before them."""

    def __init__(self, replicas: Replicas, spec: ModelSpec) -> None:
        self._replicas = replicas
        self._spec = spec

    async def ask(self, ask: Ask, load: Load) -> Answer:
        decoding = self._spec.resolve(decoding_of(load))
        requests = [
            GenerationRequest(
                request_id=f"{ask.index}-{i}",
                prompt_ids=prompt,
                decoding=decoding,
                lane=load.lane,
                stream=load.stream,
            )
            for i, prompt in enumerate(ask.prompts)
        ]
        try:
            if load.stream:
                return await self._streamed(requests)
            done = await self._replicas.generate(requests, timeout_s=TIMEOUT_S)
        except RaydiffError:
            return Answer(status=0)
        failed = any(completion.finish_reason == "error" for completion in done)
        return Answer(
            status=0 if failed else 200, tokens=sum(c.usage.completion_tokens for c in done)
        )

    async def close(self) -> None:
        return None

    async def _streamed(self, requests: list[GenerationRequest]) -> Answer:
        rows = await asyncio.gather(*(self._one_stream(request) for request in requests))
        firsts = [first for first, _ in rows if first is not None]
        tokens = sum(tokens for _, tokens in rows)
        return Answer(status=200, tokens=tokens, first_s=min(firsts, default=None))

    async def _one_stream(self, request: GenerationRequest) -> tuple[float | None, int]:
        first_s, tokens = None, 0
        stream = cast("Any", self._replicas.stream(request, timeout_s=TIMEOUT_S))
        async with aclosing(stream):
            async for event in stream:
                if event.text and first_s is None:
                    first_s = time.monotonic()
                if event.completion is not None:
                    tokens = event.completion.usage.completion_tokens
        return first_s, tokens


def body_of(ask: Ask, load: Load, model: str) -> dict[str, Any]:
    """The body of a request to `/v1/completions`."""
    prompt = ask.texts[0] if len(ask.texts) == 1 else list(ask.texts)
    body: dict[str, Any] = {"model": model, "prompt": prompt}
    if load.output_tokens is not None:
        tokens = load.output_tokens
        body.update(max_tokens=tokens, min_tokens=tokens, ignore_eos=True)
    if load.stream:
        body.update(stream=True, stream_options={"include_usage": True})
    if load.lane == "batch":
        body["service_tier"] = BATCH_TIER
    return body


def whole_answer(raw: bytes) -> Answer:
    """The answer in the body of a response that was not streamed."""
    return Answer(status=200, tokens=json.loads(raw)["usage"]["completion_tokens"])


class StreamReader:
    """Reads lines of a stream; only what it must is decoded, so that it keeps up."""

    def __init__(self) -> None:
        self.first_s: float | None = None
        """When the first text came."""
        self._last = b""
        self._ended = False

    def take(self, line: bytes) -> None:
        """One line, as it came."""
        if not line.startswith(_DATA):
            return
        data = line[len(_DATA) :].strip()
        if data == _DONE:
            self._ended = True
            return
        self._last = data
        if self.first_s is None and has_text(json.loads(data)):
            self.first_s = time.monotonic()

    def answer(self) -> Answer:
        """What the stream came to; status 0 if it broke."""
        last = json.loads(self._last) if self._last else {}
        if not self._ended or not last.get("usage"):
            return Answer(status=0, first_s=self.first_s)
        tokens = last["usage"]["completion_tokens"]
        return Answer(status=200, tokens=tokens, first_s=self.first_s)


def has_text(chunk: dict[str, Any]) -> bool:
    """Whether a chunk brings text."""
    return any(choice.get("text") for choice in chunk.get("choices", ()))


def decoding_of(load: Load) -> Decoding:
    """What a load's requests ask for, without HTTP."""
    tokens = load.output_tokens
    if tokens is None:
        return Decoding()
    return Decoding(max_tokens=tokens, min_tokens=tokens, ignore_eos=True)


async def _read_stream(response: aiohttp.ClientResponse) -> Answer:
    reader = StreamReader()
    async for line in response.content:
        reader.take(line)
    return reader.answer()
