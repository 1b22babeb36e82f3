"""Shards that are under way at the same time generate each content once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import RayError

from raydiff.config import CorpusSettings
from raydiff.corpus import process
from raydiff.corpus.coordinator import Coordinator
from raydiff.corpus.cutting import plan_items
from raydiff.corpus.dedupe import Answer, NothingShared, SharedResults
from raydiff.corpus.gate import CallGate
from raydiff.corpus.inputs import open_inputs
from raydiff.corpus.plan import Shard
from raydiff.corpus.process import ShardProcessor
from raydiff.corpus.sharing import RunResults
from raydiff.corpus.work import WorkSettings
from raydiff.errors import EngineError
from raydiff.request import Completion, Decoding, GenerationRequest
from raydiff.storage import LocalFolder
from raydiff.text import DocumentPrompts

from .conftest import WriteCorpus, read_outputs
from .fakes import FakeGenerator


class Method:
    """A method of an actor's handle."""

    def __init__(self, method: Any) -> None:
        self._method = method

    async def remote(self, *arguments: Any) -> Any:
        return await self._method(*arguments)


class Handle:
    """An actor's handle, without the actor."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.claim = Method(coordinator.claim)
        self.settle = Method(coordinator.settle)


class Gone:
    """A handle of an actor that is gone."""

    class _Method:
        async def remote(self, *_: Any) -> Any:
            raise RayError("gone")

    claim = settle = _Method()


def make_processor(
    model: str, source: Path, output: Path, shared: SharedResults, generator: FakeGenerator
) -> tuple[ShardProcessor, list[Shard]]:
    inputs = open_inputs(CorpusSettings(input=str(source), output=str(output)))
    planned = plan_items(inputs, inputs.listing, 4)
    folder = LocalFolder(output)
    folder.make("errors")
    folder.make("attempts")
    processor = ShardProcessor(
        input_folder=inputs.folder,
        output=folder,
        layout=inputs.layout,
        prompts=DocumentPrompts.of(generator.tokenizer, None, 16),
        generator=generator,
        settings=WorkSettings(
            decoding=Decoding(max_tokens=16, steps=4), seed=0, documents_per_call=4, max_attempts=1
        ),
        gate=CallGate(8),
        call_timeout_s=5,
        shared=shared,
    )
    return processor, [item for item in planned if isinstance(item, Shard)]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_POLL_S", 0.01)


TEXTS = ["same", "one", "same", "two", "same", "three", "four", "same", "one", "five"]


async def rows_of(
    name: str, tmp_path: Path, toy_model: str, source: Path, shared: SharedResults
) -> tuple[list[dict[str, Any]], int, int]:
    """The rows, the documents that were sent, and those counted as copied."""
    generator = FakeGenerator(toy_model, 0.02)
    processor, shards = make_processor(toy_model, source, tmp_path / name, shared, generator)
    reports = await asyncio.gather(*map(processor.process, shards))
    good, bad = read_outputs(tmp_path / name)
    assert bad == []
    duplicates = sum(report.totals.duplicates for report in reports)
    return good, sum(generator.sent.values()), duplicates


async def test_each_content_is_sent_once_and_the_rows_are_as_without_sharing(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    source = write_corpus(tmp_path / "a.parquet", TEXTS)
    results = RunResults(Handle(Coordinator()))
    shared, sent, copied = await rows_of("shared", tmp_path, toy_model, source, results)
    alone, all_sent, _ = await rows_of("alone", tmp_path, toy_model, source, NothingShared())
    assert shared == alone
    assert sent == len(set(TEXTS)) < all_sent
    assert copied == len(TEXTS) - len(set(TEXTS))


async def test_without_the_coordinator_every_shard_is_for_itself(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    source = write_corpus(tmp_path / "a.parquet", TEXTS)
    gone, _, _ = await rows_of("gone", tmp_path, toy_model, source, RunResults(Gone()))
    alone, _, _ = await rows_of("alone", tmp_path, toy_model, source, NothingShared())
    assert gone == alone


class FailingFirst(FakeGenerator):
    """Fails, late, calls with the first document of the first shard."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.started = asyncio.Event()

    async def generate(
        self, requests: Sequence[GenerationRequest], *, timeout_s: float
    ) -> list[Completion]:
        self.started.set()
        completions = await super().generate(requests, timeout_s=timeout_s)
        if any(r.request_id.startswith("00000000-") and "/0/0/" in r.request_id for r in requests):
            await asyncio.sleep(0.1)
            raise EngineError("broken")
        return completions


async def test_a_shard_that_waits_takes_over_from_one_that_failed(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    source = write_corpus(tmp_path / "a.parquet", ["same"] + ["other"] * 3 + ["same"])
    generator = FailingFirst(toy_model)
    shared = RunResults(Handle(Coordinator()))
    processor, shards = make_processor(toy_model, source, tmp_path / "out", shared, generator)
    first = asyncio.create_task(processor.process(shards[0]))
    await generator.started.wait()
    await asyncio.gather(first, processor.process(shards[1]))
    good, bad = read_outputs(tmp_path / "out")
    assert [row["source_row"] for row in good] == [1, 2, 3, 4]
    assert [row["source_row"] for row in bad] == [0]


class Dying(NothingShared):
    """Claims for a shard whose worker then dies."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def claim(self, owner: str, keys: Sequence[bytes]) -> list[Answer]:
        return await self._coordinator.claim(owner, keys)

    async def settle(
        self, owner: str, results: Mapping[bytes, bytes], failed: Sequence[bytes]
    ) -> None:
        raise asyncio.CancelledError


async def test_a_shard_tried_again_goes_on_with_its_claims(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    source = write_corpus(tmp_path / "a.parquet", ["same", "one"])
    coordinator = Coordinator()
    generator = FakeGenerator(toy_model)
    output = tmp_path / "out"
    dying, (shard,) = make_processor(toy_model, source, output, Dying(coordinator), generator)
    with pytest.raises(asyncio.CancelledError):
        await dying.process(shard)
    results = RunResults(Handle(coordinator))
    again, _ = make_processor(toy_model, source, output, results, generator)
    await again.process(shard)
    assert len(read_outputs(output)[0]) == 2
