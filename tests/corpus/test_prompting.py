"""The prompts of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from raydiff.config import CorpusSettings, TaskSettings
from raydiff.corpus.directory import open_run
from raydiff.corpus.prompting import corpus_prompts
from raydiff.errors import UsageError
from raydiff.request import Decoding
from raydiff.text import PromptStyle, Tokenizer

from .conftest import MAX_PROMPT_TOKENS, WriteCorpus

DECODING = Decoding(max_tokens=16, steps=4)


def test_a_prompt_that_leaves_no_room_is_refused_before_anything_is_planned(
    tmp_path: Path, write_corpus: WriteCorpus, toy_model: str
) -> None:
    write_corpus(tmp_path / "a.parquet", ["x"])
    settings = CorpusSettings(
        input=str(tmp_path / "a.parquet"),
        output=str(tmp_path / "out"),
        model=toy_model,
        task=TaskSettings(template="much too long " * 9 + "{text}"),
    )
    with pytest.raises(UsageError, match="to leave room for text"), open_run(settings, DECODING):
        pass
    assert not (tmp_path / "out").exists()


def test_prompts_are_as_long_as_the_model_takes_and_shorter_for_rewrites(toy_model: str) -> None:
    def limit(kind: str) -> int:
        task = TaskSettings.model_validate({"kind": kind, "template": "{text}"})
        settings = CorpusSettings(input="in", output="out", model=toy_model, task=task)
        tokenizer = Tokenizer.load(toy_model)
        return corpus_prompts(settings, PromptStyle(), DECODING, tokenizer).limit

    assert limit("summarize") == MAX_PROMPT_TOKENS
    assert limit("rewrite") < MAX_PROMPT_TOKENS
