"""`raydiff train summarizer` trains, resumes and exports from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from raydiff.models.loading import load_denoiser
from raydiff.train.batches import TokenisedPairs
from raydiff.train.checkpoint import save_start
from raydiff.train.summarizer import main
from raydiff.train.tokenizer import train_tokenizer

FLAGS = ["--threads", "1", "--batch-rows", "2", "--document-tokens", "16", "--warmup-steps", "1"]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work directory whose start and corpus are already prepared, tiny."""
    tokenizer = train_tokenizer(["a small tool for small things"] * 20, vocab_size=280)
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    save_start(tmp_path / "start", tokenizer, BertForMaskedLM(config))
    rows = [tokenizer.encode(f"tool {n}", add_special_tokens=False).ids for n in range(8)]
    documents = [np.array(ids, dtype=np.int64) for ids in rows]
    pairs = TokenisedPairs(documents=documents, summaries=documents, groups=np.arange(8))
    pairs.save(tmp_path / "train.npz")
    return tmp_path


def test_a_run_goes_on_where_the_last_one_stopped_and_its_export_loads(work: Path) -> None:
    assert main(["--work", str(work), "--steps", "2", *FLAGS]) == 0
    assert main(["--work", str(work), "--decay", "2", *FLAGS]) == 0
    assert torch.load(work / "checkpoint.pt", weights_only=True)["step"] == 4
    exported = work / "exported"
    assert main(["--work", str(work), "--export", str(exported), "--average"]) == 0
    denoiser = load_denoiser(exported, "cpu", "fp32")
    assert len(AutoTokenizer.from_pretrained(str(exported))) == denoiser.spec.vocab_size
    assert (exported / "model.safetensors").stat().st_mode & 0o044 == 0o044


def test_an_export_keeps_tuned_decoding_facts(work: Path) -> None:
    main(["--work", str(work), "--steps", "1", *FLAGS])
    exported = work / "exported"
    main(["--work", str(work), "--export", str(exported)])
    config = exported / "config.json"
    config.write_text(config.read_text().replace('"end_bias": 1.25', '"end_bias": 0.25'))
    main(["--work", str(work), "--export", str(exported)])
    assert load_denoiser(exported, "cpu", "fp32").spec.end_bias == 0.25


@pytest.mark.parametrize("flags", [["--steps", "2"], []])
def test_a_missing_corpus_or_goal_is_a_usage_error(tmp_path: Path, flags: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--work", str(tmp_path / "new"), *flags])
    assert stopped.value.code == 2
