"""Another run in the same directory is refused, and the difference is named."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from raydiff.config import CorpusSettings
from raydiff.corpus.fingerprint import (
    asked_columns,
    describe_differences,
    make_fingerprint,
    model_digest,
    require_same,
)
from raydiff.corpus.inputs import Columns
from raydiff.errors import ModelError, RunConflict
from raydiff.request import Decoding
from raydiff.text import PromptStyle

COLUMNS = Columns(text="text", id="doc_id")


def fingerprint(
    decoding: Decoding | None = None, instruction: str | None = None, **options: Any
) -> dict[str, Any]:
    settings = CorpusSettings(input="in", output="out", **options)
    style = PromptStyle.asking(instruction)
    columns = asked_columns(settings, COLUMNS)
    return make_fingerprint(settings, decoding or Decoding(steps=4), style, "digest", columns)


def test_other_options_are_named_with_both_values() -> None:
    before = fingerprint()
    after = fingerprint(Decoding(steps=8), seed=7, shard_rows=10)
    with pytest.raises(RunConflict) as caught:
        require_same(before, after, "/out")
    message = str(caught.value)
    assert "decoding.steps was 4, now 8" in message
    assert "seed was 0, now 7" in message
    assert "shard_rows was 256, now 10" in message


def test_the_same_run_is_accepted() -> None:
    require_same(fingerprint(), fingerprint(), "/out")


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


def test_another_instruction_is_another_run() -> None:
    asked = fingerprint(instruction="Shorten it.")
    differences = describe_differences(asked, fingerprint(instruction="Translate it."))
    assert "prompt.template was 'Shorten it.\\n\\n{text}', now 'Translate it.\\n\\n{text}'" in (
        differences
    )


def test_other_rules_for_documents_make_another_run() -> None:
    before = fingerprint()
    assert describe_differences(before, fingerprint(on_long="fail", dedupe=False)) == [
        "documents.dedupe was True, now False",
        "documents.on_long was 'chunk', now 'fail'",
    ]


def test_an_id_column_found_by_its_name_is_not_asked_for_again() -> None:
    assert fingerprint()["columns"]["id"] == "doc_id"
    differences = describe_differences(fingerprint(), fingerprint(id_column="key"))
    assert differences == ["columns.id was 'doc_id', now 'key'"]


def test_other_columns_are_another_run() -> None:
    differences = describe_differences(fingerprint(), fingerprint(pass_columns=("url",)))
    assert differences == ["columns.passed was [], now ['url']"]
