"""`raydiff train masked|discrete-flow|uniform`: trains, resumes and exports by command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from raydiff.cli import main as raydiff
from raydiff.config import EngineSettings
from raydiff.engine import Engine
from raydiff.families import load_spec
from raydiff.train.corpus import write_pairs
from raydiff.train.debian import Pair
from raydiff.train.discrete import Kind
from raydiff.train.small import SHAPES, main
from raydiff.train.tokenizer import train_tokenizer

KINDS: tuple[Kind, ...] = ("masked", "discrete-flow", "uniform")
FLAGS = ["--batch-rows", "2", "--document-tokens", "10", "--target-tokens", "8"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    pairs = [Pair(f"p{n}", f"a small tool number {n} for things", f"tool {n}") for n in range(8)]
    write_pairs(folder / "train.parquet", pairs)
    return folder


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """A tiny model to start from, so that no pretrained words are needed."""
    torch.manual_seed(0)
    size = train_tokenizer(TEXTS, 280, lower=True).get_vocab_size()
    config = BertConfig(
        vocab_size=size,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=20,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    BertForMaskedLM(config).save_pretrained(str(tmp_path / "begin"))
    return tmp_path / "begin"


TEXTS = [f"a small tool number {n} for things tool {n} tool {n}" for n in range(8)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_where_the_last_one_stopped_and_its_export_generates(
    tmp_path: Path, corpus: Path, start: Path, kind: Kind
) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    train_tokenizer(TEXTS, 280, lower=True).save(str(tokenizer))
    where = ["--corpus", str(corpus), "--work", str(tmp_path / "work"), *FLAGS]
    begin = ["--start", str(start), "--tokenizer", str(tokenizer)]
    assert main(kind, [*where, *begin, "--steps", "2"]) == 0
    assert main(kind, [*where, "--decay", "2"]) == 0
    checkpoint = torch.load(tmp_path / "work" / "checkpoint.pt", weights_only=True)
    assert checkpoint["step"] == 4
    exported = tmp_path / "exported"
    assert main(kind, ["--work", str(tmp_path / "work"), "--export", str(exported)]) == 0
    engine = Engine.load(exported, dtype="fp32", settings=EngineSettings(threads=1))
    (completion,) = engine.generate(["a small tool"])
    assert completion.usage.forwards > 0
    assert len(AutoTokenizer.from_pretrained(str(exported))) == engine.spec.vocab_size


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_says_its_noise_and_attention(
    tmp_path: Path, corpus: Path, start: Path, kind: Kind
) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    train_tokenizer(TEXTS, 280, lower=True).save(str(tokenizer))
    work = tmp_path / "work"
    begin = ["--start", str(start), "--tokenizer", str(tokenizer), "--steps", "1"]
    main(kind, ["--corpus", str(corpus), "--work", str(work), *begin, *FLAGS])
    main(kind, ["--work", str(work), "--export", str(tmp_path / "exported")])
    spec = load_spec(tmp_path / "exported")
    assert (spec.noise, spec.attention) == (SHAPES[kind].noise, SHAPES[kind].attention)
    assert (spec.max_prompt_tokens, spec.target_position, spec.block_length) == (12, 12, 8)
    assert spec.cache == ("none" if kind == "masked" else "exact")
    assert json.loads((work / "settings.json").read_text())["kind"] == kind


@pytest.mark.parametrize("flags", [["--steps", "2"], []])
def test_a_missing_corpus_or_goal_is_a_usage_error(tmp_path: Path, flags: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main("masked", ["--work", str(tmp_path / "new"), *flags])
    assert stopped.value.code == 2


@pytest.mark.parametrize("kind", KINDS)
def test_help_lists_a_recipes_settings(kind: Kind, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        raydiff(["train", kind, "--help"])
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    assert SHAPES[kind].noise in printed
    assert "--target-tokens" in printed
