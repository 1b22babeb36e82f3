"""A workload is documents of a file, shortest first, within the model's context."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.bench.workload import load_workload
from raydiff.errors import InputError
from raydiff.request import Decoding
from raydiff.text import Tokenizer
from raydiff.text.documents import DEFAULT_INSTRUCTION


@pytest.fixture
def tokenizer(tiny_checkpoint: Path) -> Tokenizer:
    return Tokenizer.load(tiny_checkpoint)


def test_documents_come_shortest_first_each_with_its_own_summary(
    corpus: Path, tokenizer: Tokenizer
) -> None:
    workload = load_workload(corpus, tokenizer)
    lengths = [len(prompt) for prompt in workload.prompts]
    assert lengths == sorted(lengths)
    pairs = dict(zip(workload.texts, workload.references, strict=True))
    assert pairs["x"] == "letter"
    assert pairs["many tools"] == "tools"


def test_a_limit_spreads_documents_over_the_file(corpus: Path, tokenizer: Tokenizer) -> None:
    workload = load_workload(corpus, tokenizer, documents=2)
    assert set(workload.references) == {"data library", "web tools"}


def test_a_document_beyond_the_context_is_cut_to_fit(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "long.parquet"
    pq.write_table(pa.table({"text": ["many files of data " * 900, None]}), path)
    workload = load_workload(path, tokenizer)
    assert workload.texts[0] == ""
    assert 0 < len(workload.prompts[1]) - 2 <= tokenizer.max_text_tokens
    assert workload.references == ()


@pytest.mark.parametrize("model", ["random:tiny-llada", "random:tiny-bert"])
def test_prompts_leave_room_for_the_models_usual_answer(tmp_path: Path, model: str) -> None:
    path = tmp_path / "long.parquet"
    pq.write_table(pa.table({"text": ["many files of data " * 900]}), path)
    tokenizer = Tokenizer.load(model)
    workload = load_workload(path, tokenizer)
    usual = tokenizer.spec.resolve(Decoding()).max_tokens
    assert len(workload.prompts[0]) <= tokenizer.spec.prompt_limit(usual or 0)
    asked = DEFAULT_INSTRUCTION in tokenizer.decode(workload.prompts[0])
    assert asked == tokenizer.has_chat_template


def test_what_is_no_corpus_is_refused(tmp_path: Path, corpus: Path, tokenizer: Tokenizer) -> None:
    bad = tmp_path / "bad.parquet"
    bad.write_text("not Parquet")
    with pytest.raises(InputError, match="readable Parquet"):
        load_workload(bad, tokenizer)
    with pytest.raises(InputError, match="readable Parquet"):
        load_workload(tmp_path / "missing.parquet", tokenizer)
    with pytest.raises(InputError, match=r"text column: expected one of text, summary, got 'body'"):
        load_workload(corpus, tokenizer, text_column="body")
