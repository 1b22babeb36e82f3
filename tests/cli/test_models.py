"""`raydiff models` describes a checkpoint without loading it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raydiff.cli import main


def test_a_checkpoint_is_described_from_its_headers(
    tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import BertForMaskedLM

    assert main(["models", str(tiny_checkpoint), "--json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)["models"]
    loaded = BertForMaskedLM.from_pretrained(str(tiny_checkpoint))
    assert model["parameters"] == loaded.num_parameters()
    assert model["dtype"] == "F32"
    assert model["block_length"] == 32
    assert model["cache"] == "exact"
    # keys and values of 2 layers, 32 wide, over 448 + 64 positions of 4 bytes
    assert model["cache_bytes"] == 2 * 2 * 32 * 512 * 4


def test_the_bundled_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("summarizer\n")
    assert "block length" in printed


def test_a_missing_checkpoint_is_status_3(tmp_path: Path) -> None:
    assert main(["models", str(tmp_path)]) == 3
