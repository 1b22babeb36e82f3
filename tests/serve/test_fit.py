"""Whether a model fits its device."""

from __future__ import annotations

from pathlib import Path

import pytest

from raydiff.config import ModelSettings
from raydiff.errors import ModelError
from raydiff.serve import fit
from raydiff.serve.fit import check_fits, require_room, weight_bytes


def test_the_bytes_of_the_weights_follow_from_the_headers(checkpoint: Path) -> None:
    stored = sum(file.stat().st_size for file in checkpoint.glob("*.safetensors"))
    assert 0.9 * stored < weight_bytes(checkpoint, 4) < stored
    assert weight_bytes(checkpoint, 2) * 2 == weight_bytes(checkpoint, 4)


def test_a_model_that_exceeds_its_device_is_refused_with_the_bytes_it_needs(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ModelSettings(model=str(checkpoint), device="cpu", dtype="fp32")
    needed = weight_bytes(checkpoint, 4)
    check_fits(settings)
    monkeypatch.setattr(fit, "free_memory_bytes", lambda device: needed - 1)
    with pytest.raises(ModelError, match=f"{needed} bytes.*{needed - 1} bytes"):
        check_fits(settings)


def test_weights_that_just_fit_are_allowed() -> None:
    require_room("m", 10, 10, "cpu")


def test_a_file_that_is_no_safetensors_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\x05\0\0\0\0\0\0\0hello")
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        weight_bytes(tmp_path, 4)
