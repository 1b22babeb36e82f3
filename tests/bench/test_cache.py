"""`raydiff bench cache`: what approximate caches change is measured against no cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from raydiff.bench.cache import CacheBench, run_cache_bench
from raydiff.cli import main
from raydiff.errors import DecodingError
from raydiff.train.checkpoint import save_start
from raydiff.train.small import section_of, start_config
from raydiff.train.start import copying_start, random_words, word_width
from raydiff.train.tokenizer import train_tokenizer

PROMPT, TARGET = 20, 16


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of full attention, deep and sharp enough that a stale cache shows."""
    folder = tmp_path_factory.mktemp("masked")
    tokenizer = train_tokenizer(["a small library of tools to read and write data"] * 9, 290)
    config = start_config(tokenizer.get_vocab_size(), PROMPT + TARGET)
    torch.manual_seed(0)
    model = copying_start(config, PROMPT, random_words(config.vocab_size, word_width(config), 0))
    for weight in model.bert.encoder.layer[1:].parameters():
        if weight.ndim == 2:
            torch.nn.init.normal_(weight, 0.0, 0.1)
    save_start(folder, tokenizer, model, section_of("masked", PROMPT, TARGET))
    return folder


@pytest.fixture
def bench(masked: Path, corpus: Path) -> CacheBench:
    return CacheBench(
        input=str(corpus),
        model=str(masked),
        block_length=4,
        steps=4,
        refresh=(1, 4),
        windows=(0, 2),
        threads=1,
        documents=5,
        repeats=1,
    )


def test_every_cache_is_compared_with_none_over_equal_forwards(bench: CacheBench) -> None:
    report = run_cache_bench(bench)
    lines = {line["cache"]: line for line in report["caches"]}
    assert list(lines) == [
        "none",
        "prefix, refresh 1",
        "prefix, refresh 4",
        "dual, refresh 1, window 0",
        "dual, refresh 4, window 0",
        "dual, refresh 1, window 2",
        "dual, refresh 4, window 2",
    ]
    exact = lines["none"]
    assert exact["tokens_equal"] == exact["documents_equal"] == exact["over_none"] == 1
    for name, line in lines.items():
        if "refresh 1" in name:  # nothing is kept: exactly the tokens without a cache
            assert line["documents_equal"] == 1, name
            assert line["positions_per_forward"] == exact["positions_per_forward"], name
        elif name != "none":
            assert line["positions_per_forward"] < exact["positions_per_forward"], name
    assert lines["dual, refresh 4, window 0"]["tokens_equal"] < 1


def test_a_wider_window_and_the_prefix_cache_compute_more_positions(bench: CacheBench) -> None:
    lines = {line["cache"]: line for line in run_cache_bench(bench)["caches"]}
    dual, wider, prefix = (
        lines[name]["positions_per_forward"]
        for name in ("dual, refresh 4, window 0", "dual, refresh 4, window 2", "prefix, refresh 4")
    )
    assert dual < wider
    assert dual < prefix


def test_a_model_with_an_exact_cache_is_refused(tiny_checkpoint: Path, corpus: Path) -> None:
    bench = CacheBench(input=str(corpus), model=str(tiny_checkpoint), block_length=8, threads=1)
    with pytest.raises(DecodingError, match="cache: expected auto or none"):
        run_cache_bench(bench)


def test_the_command_prints_a_table_and_writes_its_report(
    masked: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--input", str(corpus), "--model", str(masked), "--threads", "1"]
    sizes = ["--block-length", "8", "--steps", "2", "--refresh", "2", "--window", "0"]
    file = tmp_path / "cache.json"
    arguments = ["bench", "cache", *where, *sizes, "--repeats", "1", "--json", str(file)]
    assert main(arguments) == 0
    assert "tokens_equal" in capsys.readouterr().out
    assert len(json.loads(file.read_text())["caches"]) == 3
