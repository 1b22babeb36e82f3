"""Labels and rewrites of a corpus with a real engine, without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from raydiff.config import CorpusSettings, TaskSettings
from raydiff.corpus.directory import open_run
from raydiff.corpus.gate import CallGate
from raydiff.corpus.process import ShardProcessor
from raydiff.corpus.work import WorkSettings
from raydiff.engine import Engine
from raydiff.errors import DecodingError, UsageError
from raydiff.request import Completion, Decoding, GenerationRequest
from raydiff.text import DocumentPrompts, Tokenizer, longest_text

from .conftest import WriteCorpus, read_outputs

MODEL = "random:tiny-llada"
LABELS = TaskSettings(kind="label", labels=("Sport", "the weather", "politics"))
REWRITE = TaskSettings(kind="rewrite", template="In other words: {text}")
TEXTS = ["It rained.", "The match was lost.", "It rained.", None, "word and word " * 60]


class InProcess:
    """One engine as the service of a run."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._engine = Engine.load(MODEL, device="cpu", dtype="fp32")

    async def generate(
        self, requests: Sequence[GenerationRequest], *, timeout_s: float
    ) -> list[Completion]:
        for request in requests:
            self._engine.submit(request)
        done: dict[str, Completion] = {}
        while self._engine.has_work():
            done |= {e.request_id: e.completion for e in self._engine.step() if e.completion}
        return [done[request.request_id] for request in requests]


def run(
    source: Path, output: Path, task: TaskSettings, decoding: Decoding | None = None
) -> list[dict[str, Any]]:
    """The rows of a whole run."""
    settings = CorpusSettings(input=str(source), output=str(output), model=MODEL, task=task)
    tokenizer = Tokenizer.load(MODEL)
    with open_run(settings, decoding or Decoding()) as opened:
        resolved = opened.decoding
        processor = ShardProcessor(
            input_folder=opened.inputs.folder,
            output=opened.folder,
            layout=opened.inputs.layout,
            prompts=DocumentPrompts.styled(
                tokenizer, opened.style, resolved.max_tokens or 1, longest_text(task, resolved)
            ),
            generator=InProcess(),
            settings=WorkSettings.of(settings, resolved, tokenizer),
            gate=CallGate(2),
            call_timeout_s=60,
        )

        async def process() -> None:
            for shard in opened.pending:
                await processor.process(shard)

        asyncio.run(process())
    good, bad = read_outputs(output)
    assert [row["error_type"] for row in bad] == ["NullDocument"]
    return good


def test_every_document_gets_a_label_as_it_was_given(
    tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    rows = run(write_corpus(tmp_path / "a.parquet", TEXTS), tmp_path / "out", LABELS)
    assert len(rows) == 4
    columns = list(rows[0])
    assert columns.index("label_probability") == columns.index("label") + 1
    for row in rows:
        assert row["label"] in LABELS.labels
        assert 0 < row["label_probability"] <= 1
        assert row["finish_reason"] == "stop"
    assert rows[0]["label"] == rows[2]["label"]  # the same text
    assert rows[-1]["chunks"] > 1


def test_long_documents_are_rewritten_in_pieces_that_have_room(
    tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    source = write_corpus(tmp_path / "a.parquet", TEXTS)
    decoding = Decoding(max_tokens=100, steps=4, policy="threshold", threshold=0.0)
    rows = run(source, tmp_path / "out", REWRITE, decoding)
    assert "label_probability" not in rows[0]
    long = rows[-1]
    assert long["chunks"] >= len(TEXTS[-1] or "") / 80
    assert long["rewrite"]


@pytest.mark.parametrize(
    ("task", "decoding", "error"),
    [
        (LABELS.model_copy(update={"labels": ("a",)}), Decoding(), UsageError),
        (LABELS, Decoding(max_tokens=4), DecodingError),
        (LABELS, Decoding(ignore_eos=True), DecodingError),
        (LABELS, Decoding(policy="edit"), DecodingError),
    ],
)
def test_what_cannot_label_is_refused_before_anything_is_written(
    tmp_path: Path,
    write_corpus: WriteCorpus,
    task: TaskSettings,
    decoding: Decoding,
    error: type[Exception],
) -> None:
    source = write_corpus(tmp_path / "a.parquet", TEXTS)
    with pytest.raises(error):
        run(source, tmp_path / "out", task, decoding)
    assert not (tmp_path / "out").exists()
