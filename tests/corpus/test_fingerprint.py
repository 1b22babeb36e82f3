"""Another run in the same directory is refused, and the difference is named."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from raydiff.config import CorpusSettings
from raydiff.corpus.fingerprint import (
    describe_differences,
    make_fingerprint,
    model_digest,
    require_same,
)
from raydiff.corpus.inputs import read_inputs
from raydiff.errors import ModelError, RunConflict
from raydiff.request import Decoding
from raydiff.text import PromptStyle

from .conftest import WriteCorpus


def fingerprint(
    source: Path,
    decoding: Decoding | None = None,
    instruction: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    inputs = read_inputs(str(source), text="text", id_column=None, passed=())
    settings = CorpusSettings(input=str(source), output="out", **options)
    style = PromptStyle.asking(instruction)
    return make_fingerprint(settings, inputs, decoding or Decoding(steps=4), style, "digest")


@pytest.fixture
def source(tmp_path: Path, write_corpus: WriteCorpus) -> Path:
    for name in "abcde":
        write_corpus(tmp_path / "in" / f"{name}.parquet", [f"text {name}", "other"])
    return tmp_path / "in"


def test_moving_or_touching_the_input_changes_nothing(source: Path, tmp_path: Path) -> None:
    before = fingerprint(source)
    os.utime(source / "a.parquet", (1, 1))
    moved = Path(shutil.copytree(source, tmp_path / "elsewhere"))
    assert fingerprint(moved) == before


def test_rewriting_a_file_is_a_difference(source: Path, write_corpus: WriteCorpus) -> None:
    before = fingerprint(source)
    write_corpus(source / "b.parquet", ["text x", "other"])
    assert describe_differences(before, fingerprint(source)) == ["input files changed: b.parquet"]


def test_added_and_removed_files_are_named_up_to_three(
    source: Path, write_corpus: WriteCorpus
) -> None:
    before = fingerprint(source)
    for name in "abcd":
        (source / f"{name}.parquet").unlink()
    write_corpus(source / "z.parquet", ["new"])
    assert describe_differences(before, fingerprint(source)) == [
        "input files added: z.parquet",
        "input files removed: a.parquet, b.parquet, c.parquet and 1 more",
    ]


def test_other_options_are_named_with_both_values(source: Path) -> None:
    before = fingerprint(source)
    after = fingerprint(source, Decoding(steps=8), seed=7, shard_rows=10)
    with pytest.raises(RunConflict) as caught:
        require_same(before, after, "/out")
    message = str(caught.value)
    assert "decoding.steps was 4, now 8" in message
    assert "seed was 0, now 7" in message
    assert "shard_rows was 256, now 10" in message


def test_the_same_run_is_accepted(source: Path) -> None:
    require_same(fingerprint(source), fingerprint(source), "/out")


def test_a_model_is_known_by_its_contents(toy_model: str, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(toy_model, tmp_path / "copy"))
    assert model_digest(str(copy)) == model_digest(toy_model)
    (copy / "README.md").write_text("a model card is not the model")
    assert model_digest(str(copy)) == model_digest(toy_model)
    (copy / "model.safetensors").write_bytes(b"weights")
    assert model_digest(str(copy)) != model_digest(toy_model)


def test_an_unknown_model_is_a_model_error() -> None:
    with pytest.raises(ModelError):
        model_digest("no-such-model")


def test_another_instruction_is_another_run(source: Path) -> None:
    asked = fingerprint(source, instruction="Shorten it.")
    differences = describe_differences(asked, fingerprint(source, instruction="Translate it."))
    assert "prompt.template was 'Shorten it.\\n\\n{text}', now 'Translate it.\\n\\n{text}'" in (
        differences
    )


def test_other_rules_for_documents_make_another_run(source: Path) -> None:
    before = fingerprint(source)
    assert describe_differences(before, fingerprint(source, on_long="fail", dedupe=False)) == [
        "documents.dedupe was True, now False",
        "documents.on_long was 'chunk', now 'fail'",
    ]
