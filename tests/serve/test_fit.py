"""Whether a model fits its device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from raydiff.config import ModelSettings
from raydiff.errors import ModelError
from raydiff.models.precision import resolve_precision
from raydiff.models.sizes import model_size
from raydiff.serve import fit
from raydiff.serve.fit import check_fits, require_room

CPU = torch.device("cpu")


def test_a_model_that_exceeds_its_device_is_refused_with_the_bytes_it_needs(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ModelSettings(model=str(checkpoint), device="cpu", dtype="fp32")
    needed = model_size(checkpoint, resolve_precision("fp32", CPU)).weight_bytes
    check_fits(settings)
    monkeypatch.setattr(fit, "free_memory_bytes", lambda device: needed - 1)
    with pytest.raises(ModelError, match=f"{needed} bytes.*{needed - 1} bytes"):
        check_fits(settings)


def test_a_public_shape_too_large_for_the_device_is_refused_before_any_download(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fit, "free_memory_bytes", lambda device: 16 * 10**9)
    check_fits(ModelSettings(model="random:llada-8b", device="cpu", dtype="int8"))
    with pytest.raises(ModelError, match=r"random:llada-8b.*16031\d{6} bytes"):
        check_fits(ModelSettings(model="random:llada-8b", device="cpu", dtype="bf16"))


def test_weights_that_just_fit_are_allowed() -> None:
    require_room("m", 10, 10, "cpu")
