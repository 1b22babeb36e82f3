"""A store on this disk and a toy model."""

from __future__ import annotations

from pathlib import Path

import pytest

from raydiff.config import BatchSettings

from ..corpus.conftest import make_toy_model
from .service import Service


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model whose tokens are bytes, without weights; prompts of at most 64 of them."""
    return make_toy_model(tmp_path_factory.mktemp("models") / "toy", 66)


@pytest.fixture
def settings(tmp_path: Path) -> BatchSettings:
    return BatchSettings(location=str(tmp_path / "batches"), shard_lines=4, poll_s=0.05)


@pytest.fixture
def service(settings: BatchSettings, toy: str) -> Service:
    return Service(settings, toy)
