"""A shard goes from its file to its commit; the service's troubles cost no document."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from raydiff.config import CorpusSettings
from raydiff.corpus.attempts import ShardAttempts
from raydiff.corpus.careful import CAREFUL_FROM, MAX_UNEXPLAINED
from raydiff.corpus.commit import ShardReport, Totals
from raydiff.corpus.cutting import plan_items
from raydiff.corpus.gate import CallGate
from raydiff.corpus.inputs import open_inputs
from raydiff.corpus.plan import Shard
from raydiff.corpus.process import ShardProcessor
from raydiff.corpus.pulse import Pulse
from raydiff.corpus.work import WorkSettings
from raydiff.errors import ClusterError, InputError, Overloaded
from raydiff.request import Completion, Decoding, GenerationRequest
from raydiff.storage import LocalFolder
from raydiff.text import DocumentPrompts

from .conftest import WriteCorpus, make_toy_model, read_outputs
from .fakes import BROKEN, CRASH, POISON, FakeGenerator
from .spoiling import spoil_pages


class Bench:
    """A processor over a corpus, with its generator at hand."""

    def __init__(self, model: str, source: Path, output: Path, **options: Any) -> None:
        settings = CorpusSettings(
            input=str(source), output=str(output), pass_columns=options.pop("passed", ())
        )
        inputs = open_inputs(settings)
        planned = plan_items(inputs, inputs.listing, options.pop("shard_rows", 8))
        self.shards = [item for item in planned if isinstance(item, Shard)]
        self.folder = LocalFolder(output)
        self.folder.make("errors")
        self.folder.make("attempts")
        self.generator = FakeGenerator(model, options.pop("delay_s", 0.0))
        self.processor = ShardProcessor(
            input_folder=inputs.folder,
            output=self.folder,
            layout=inputs.layout,
            prompts=DocumentPrompts.of(self.generator.tokenizer, None, 16),
            generator=self.generator,
            settings=WorkSettings(
                decoding=Decoding(max_tokens=16, steps=4),
                seed=0,
                documents_per_call=4,
                max_attempts=3,
            ),
            gate=CallGate(3),
            call_timeout_s=5,
        )

    async def run(self) -> list[ShardReport]:
        return await asyncio.gather(*(self.processor.process(shard) for shard in self.shards))


async def test_a_shard_becomes_rows_in_input_order(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    texts = ["long text " * 3, "b", "middling text", ""]
    source = write_corpus(tmp_path / "a.parquet", texts, note=[1, 2, 3, 4])
    bench = Bench(toy_model, source, tmp_path / "out", passed=("note",))
    (report,) = await bench.run()
    good, bad = read_outputs(tmp_path / "out")
    assert [(r["doc_id"], r["source_row"], r["note"]) for r in good] == [
        ("a-0", 0, 1),
        ("a-1", 1, 2),
        ("a-2", 2, 3),
    ]
    assert list(good[0]) == [
        *("doc_id", "source_file", "source_row", "note", "summary", "finish_reason"),
        *("prompt_tokens", "completion_tokens", "forwards", "chunks", "truncated"),
    ]
    assert bad == [
        {
            "doc_id": "a-3",
            "source_file": "a.parquet",
            "source_row": 3,
            "error_type": "EmptyDocument",
            "error_message": "The text is empty or only white space.",
            "attempts": 0,
        }
    ]
    assert (report.rows, report.errors) == (3, 1)
    assert report.totals == Totals(
        prompt_tokens=sum(r["prompt_tokens"] for r in good), completion_tokens=15, forwards=6
    )


async def test_without_an_id_column_ids_are_file_and_row(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    source = write_corpus(tmp_path / "in" / "d" / "a.parquet", ["x", None], id_name=None)
    await Bench(toy_model, source.parent.parent, tmp_path / "out").run()
    good, bad = read_outputs(tmp_path / "out")
    assert [r["id"] for r in [*good, *bad]] == ["d/a.parquet:0", "d/a.parquet:1"]


async def test_a_retried_shard_repeats_its_text(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    source = write_corpus(tmp_path / "a.parquet", [f"text {i}" for i in range(20)])
    for out in ("one", "two"):
        await Bench(toy_model, source, tmp_path / out, shard_rows=20).run()
    await Bench(toy_model, source, tmp_path / "cut", shard_rows=3).run()
    first, second, third = (read_outputs(tmp_path / out)[0] for out in ("one", "two", "cut"))
    assert first == second == third


async def test_calls_in_flight_are_bounded_over_all_shards(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    source = write_corpus(tmp_path / "a.parquet", [f"t {i}" for i in range(80)])
    bench = Bench(toy_model, source, tmp_path / "out", delay_s=0.01)
    await bench.run()
    assert bench.generator.most_in_flight == 3


async def test_the_next_shard_fills_in_as_one_runs_out(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    """Calls leave shard by shard, but the pipe is never empty between two shards."""
    source = write_corpus(tmp_path / "a.parquet", [f"t {i}" for i in range(64)])
    bench = Bench(toy_model, source, tmp_path / "out", delay_s=0.02, shard_rows=32)
    await bench.run()
    order = [call[0].request_id[:8] for call in bench.generator.calls]
    changes = sum(one != other for one, other in pairwise(order))
    assert changes == 1


async def test_a_document_of_one_megabyte_is_chunked_and_merged(
    tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    text = "The quick brown fox jumps. " * 40_000
    source = write_corpus(tmp_path / "a.parquet", ["small", text, "small too"])
    model = make_toy_model(tmp_path / "wide", 1026)
    await Bench(model, source, tmp_path / "out").run()
    good, bad = read_outputs(tmp_path / "out")
    assert bad == []
    assert good[1]["chunks"] > len(text) / 1024
    assert good[1]["summary"]
    assert [good[0]["chunks"], good[2]["chunks"]] == [1, 1]


async def test_a_document_that_kills_replicas_is_the_only_one_charged(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    texts = [f"fine {i}" for i in range(16)]
    texts[5] = f"{CRASH} here"
    source = write_corpus(tmp_path / "a.parquet", texts)
    bench = Bench(toy_model, source, tmp_path / "out", shard_rows=16, delay_s=0.005)
    await bench.run()
    good, bad = read_outputs(tmp_path / "out")
    assert [(r["source_row"], r["error_type"], r["attempts"]) for r in bad] == [
        (5, "ReplicaDied", 3)
    ]
    assert len(good) == 15
    guilty = bench.shards[0].shard_id + "/5/0/0"
    # One death with others in hand, then alone until it has had its attempts; nobody twice else.
    assert bench.generator.sent[guilty] == 1 + 3
    assert max(n for name, n in bench.generator.sent.items() if name != guilty) == 2


async def test_a_call_that_fails_as_a_whole_charges_only_who_fails_alone(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    texts = [f"fine {i}" for i in range(8)]
    texts[2] = f"{BROKEN} here"
    source = write_corpus(tmp_path / "a.parquet", texts)
    await Bench(toy_model, source, tmp_path / "out").run()
    good, bad = read_outputs(tmp_path / "out")
    assert [(r["source_row"], r["error_type"], r["attempts"]) for r in bad] == [
        (2, "EngineError", 3)
    ]
    assert len(good) == 7


async def test_deaths_are_counted_over_the_lives_of_workers(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    """Two replicas died under it before the worker was lost: it has one attempt left."""
    source = write_corpus(tmp_path / "a.parquet", ["fine", f"{CRASH} here", "fine too", "x"])
    bench = Bench(toy_model, source, tmp_path / "out")
    earlier = ShardAttempts(bench.folder, bench.shards[0])
    earlier.begin()
    for _ in range(2):
        earlier.charge(1)
    await bench.run()
    _, bad = read_outputs(tmp_path / "out")
    assert [(r["source_row"], r["error_type"], r["attempts"]) for r in bad] == [
        (1, "ReplicaDied", 3)
    ]
    assert bench.generator.sent[bench.shards[0].shard_id + "/1/0/0"] == 1


async def test_a_service_that_kills_everything_condemns_no_document(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    source = write_corpus(tmp_path / "a.parquet", [f"{CRASH} {i}" for i in range(20)])
    bench = Bench(toy_model, source, tmp_path / "out", shard_rows=20)
    with pytest.raises(ClusterError, match="all 4 documents"):
        await bench.run()
    assert read_outputs(tmp_path / "out") == ([], [])
    assert len(bench.generator.calls) < 20  # it does not go through all of them first


async def test_a_service_that_is_down_stops_the_run_instead_of_failing_documents(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    source = write_corpus(tmp_path / "a.parquet", [f"t {i}" for i in range(8)])
    bench = Bench(toy_model, source, tmp_path / "out")
    bench.generator.down = True
    with pytest.raises(ClusterError, match=r"all 8 documents.*the replica is down"):
        await bench.run()
    assert read_outputs(tmp_path / "out") == ([], [])


async def test_a_document_that_no_replica_took_stops_the_run_beside_others_that_are_done(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_corpus(tmp_path / "a.parquet", [f"t {i}" for i in range(5)])
    bench = Bench(toy_model, source, tmp_path / "out")
    answer = bench.generator.generate

    async def full(requests: Sequence[GenerationRequest], *, timeout_s: float) -> list[Completion]:
        if len(requests) == 1:
            raise Overloaded("queues are full.", retry_after_s=1.0)
        return await answer(requests, timeout_s=timeout_s)

    monkeypatch.setattr(bench.generator, "generate", full)
    with pytest.raises(ClusterError, match=r"^1 of the documents .* 3 attempts.*queues are full"):
        await bench.run()
    assert read_outputs(tmp_path / "out") == ([], [])


async def test_documents_that_all_fail_by_themselves_are_error_rows(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    source = write_corpus(tmp_path / "a.parquet", [f"{POISON} {i}" for i in range(8)])
    (report,) = await Bench(toy_model, source, tmp_path / "out").run()
    assert (report.rows, report.errors) == (0, 8)


async def test_rows_of_spoiled_pages_are_errors_and_the_rest_goes_on(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    texts = [f"text number {i}" for i in range(16)]
    source = write_corpus(tmp_path / "a.parquet", texts, row_group_size=8)
    bench = Bench(toy_model, source, tmp_path / "out")
    spoil_pages(source)
    await bench.run()
    good, bad = read_outputs(tmp_path / "out")
    assert [r["source_row"] for r in good] == list(range(8, 16))
    assert {(r["source_row"], r["error_type"]) for r in bad} == {
        (i, "CorruptRows") for i in range(8)
    }


KEPT: list[object] = []
"""Risks that were never survived: collecting them would end them."""


def die(bench: Bench, times: int, index: int | None = None) -> None:
    """As workers that died with the first shard in hand, preparing a document if one is given."""
    for _ in range(times):
        attempts = ShardAttempts(bench.folder, bench.shards[0])
        attempts.begin()
        if index is not None:
            risk = attempts.risk_document(index)
            risk.__enter__()
            KEPT.append(risk)


async def test_a_document_that_keeps_killing_its_worker_fails_alone(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    source = write_corpus(tmp_path / "a.parquet", ["x", "y", "z"])
    bench = Bench(toy_model, source, tmp_path / "out")
    die(bench, CAREFUL_FROM)
    die(bench, 3, index=1)
    await bench.run()
    good, bad = read_outputs(tmp_path / "out")
    assert [(r["source_row"], r["error_type"], r["attempts"]) for r in bad] == [
        (1, "WorkerDied", 3)
    ]
    assert [r["source_row"] for r in good] == [0, 2]
    assert bench.shards[0].shard_id + "/1/0/0" not in bench.generator.sent


async def test_a_careful_shard_marks_each_document_before_it_is_prepared(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_corpus(tmp_path / "a.parquet", ["x", "deadly", "z"])
    bench = Bench(toy_model, source, tmp_path / "out")
    die(bench, CAREFUL_FROM)
    marks: list[list[str]] = []
    fit = DocumentPrompts.fit

    def watched(self: DocumentPrompts, texts: Sequence[str], *rest: Any) -> object:
        if "deadly" in texts:
            names = bench.folder.names(f"attempts/{bench.shards[0].shard_id}")
            marks.append([n.rpartition("/")[2] for n in names])
        return fit(self, texts, *rest)

    monkeypatch.setattr(DocumentPrompts, "fit", watched)
    await bench.run()
    begun = [f"begun-{n:03d}" for n in range(1, CAREFUL_FROM + 2)]
    assert marks == [["1-001", *begun], begun]  # alone at risk, then with all others


async def test_each_document_of_a_careful_shard_is_progress(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_corpus(tmp_path / "a.parquet", ["x", "y", "z"])
    bench = Bench(toy_model, source, tmp_path / "out")
    die(bench, CAREFUL_FROM)
    begun, seen = 0, list[int]()
    on, fit = Pulse.on, DocumentPrompts.fit

    def counted(self: Pulse, shard_id: str) -> None:
        nonlocal begun
        begun += 1
        on(self, shard_id)

    def watched(self: DocumentPrompts, texts: Sequence[str], *rest: Any) -> object:
        seen.append(begun)
        return fit(self, texts, *rest)

    monkeypatch.setattr(Pulse, "on", counted)
    monkeypatch.setattr(DocumentPrompts, "fit", watched)
    await bench.run()
    assert seen[:3] == [1, 2, 3]


async def test_machines_that_go_away_condemn_no_shard(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    source = write_corpus(tmp_path / "a.parquet", ["x", "y"])
    bench = Bench(toy_model, source, tmp_path / "out")
    die(bench, CAREFUL_FROM + MAX_UNEXPLAINED - 1)
    (report,) = await bench.run()
    assert (report.rows, report.errors) == (2, 0)
    assert bench.folder.names("attempts") == []


async def test_a_shard_that_kills_its_worker_for_no_document_is_given_up_in_the_end(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    source = write_corpus(tmp_path / "a.parquet", ["x", "y"])
    bench = Bench(toy_model, source, tmp_path / "out")
    die(bench, CAREFUL_FROM + MAX_UNEXPLAINED)
    await bench.run()
    _, bad = read_outputs(tmp_path / "out")
    assert [(r["source_row"], r["error_type"]) for r in bad] == [
        (0, "WorkerDied"),
        (1, "WorkerDied"),
    ]
    assert bench.generator.calls == []


async def test_an_input_that_vanished_stops_the_run(
    tmp_path: Path, toy_model: str, write_corpus: WriteCorpus
) -> None:
    source = write_corpus(tmp_path / "a.parquet", ["x"])
    bench = Bench(toy_model, source, tmp_path / "out")
    source.unlink()
    with pytest.raises(InputError, match="cannot be read any more"):
        await bench.run()
    assert read_outputs(tmp_path / "out") == ([], [])


def test_a_report_crosses_as_a_string() -> None:
    report = ShardReport(
        shard_id="x", rows=1, errors=2, totals=Totals(forwards=3), started_s=1.5, finished_s=2.5
    )
    assert ShardReport.from_json(report.to_json()) == report
