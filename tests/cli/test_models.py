"""`raydiff models` describes models without loading them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raydiff.cli import main
from raydiff.families.presets import PRESETS
from raydiff.families.recognition import FAMILIES


def described(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["models", *arguments, "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_a_checkpoint_is_described_from_its_config(
    tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import BertForMaskedLM

    (model,) = described(capsys, str(tiny_checkpoint), "--dtype", "fp32")["models"]
    loaded = BertForMaskedLM.from_pretrained(str(tiny_checkpoint))
    assert model["parameters"] == loaded.num_parameters()
    assert model["weight_bytes"] == 4 * loaded.num_parameters()
    assert model["block_length"] == 32
    assert model["cache"] == "exact"
    # keys and values of 2 layers, 32 wide, over 448 + 64 positions of 4 bytes
    assert model["cache_bytes_per_position"] == 2 * 2 * 32 * 4
    assert model["cache_bytes"] == 2 * 2 * 32 * 512 * 4


def test_bytes_are_those_of_the_dtype_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    bf16, int8, int4 = (
        described(capsys, "random:llada-8b", "--dtype", dtype)["models"][0]
        for dtype in ("bf16", "int8", "int4")
    )
    assert bf16["weight_bytes"] > 1.7 * int8["weight_bytes"] > 1.5 * int4["weight_bytes"]
    assert bf16["cache_bytes"] == int8["cache_bytes"] == int4["cache_bytes"]


def test_a_sequence_is_counted_at_the_full_context(capsys: pytest.CaptureFixture[str]) -> None:
    (model,) = described(capsys, "random:llada-8b")["models"]
    assert model["context_length"] == 4096
    assert model["cache_bytes"] == 4096 * model["cache_bytes_per_position"] == 2**31


def test_caches_are_exact_approximate_or_none(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("random:sdar-4b", "random:dream-7b", "random:diffuseq")
    models = described(capsys, *names)["models"]
    assert [model["cache"] for model in models] == ["exact", "approximate", "none"]
    assert models[2]["cache_bytes"] == 0


def test_without_a_name_models_families_and_presets_are_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = described(capsys)
    assert "summarizer" in [model["name"] for model in report["models"]]
    assert [family["name"] for family in report["families"]] == [f.name for f in FAMILIES]
    assert [preset["name"] for preset in report["presets"]] == [f"random:{p}" for p in PRESETS]


def test_every_family_has_a_preset_and_its_policies(capsys: pytest.CaptureFixture[str]) -> None:
    report = described(capsys, "--families")
    assert "presets" not in report
    assert all(family["presets"] and family["policies"] for family in report["families"])


def test_the_listing_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--presets"]) == 0
    printed = capsys.readouterr().out
    assert "Families" not in printed
    (line,) = (line for line in printed.splitlines() if line.startswith("random:llada-8b"))
    assert "8.02 B" in line
    assert "16 GB" in line


def test_what_was_not_read_in_a_public_config_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "random:llada2-flash"]) == 0
    assert "unchecked" in capsys.readouterr().out


def test_an_unknown_preset_is_status_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "random:gpt-5"]) == 3
    assert "llada-8b" in capsys.readouterr().err


def test_a_missing_checkpoint_is_status_3(tmp_path: Path) -> None:
    assert main(["models", str(tmp_path)]) == 3
