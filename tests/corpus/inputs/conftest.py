"""Opens inputs as a run does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raydiff.config import CorpusSettings
from raydiff.corpus.cutting import plan_items
from raydiff.corpus.inputs import Inputs, open_inputs
from raydiff.corpus.plan import FileFacts

OpenInputs = Callable[..., Inputs]


@pytest.fixture
def opened() -> OpenInputs:
    """`open_inputs` of a path, with any settings."""

    def open_path(path: Path | str, **options: Any) -> Inputs:
        return open_inputs(CorpusSettings(input=str(path), output="unused", **options))

    return open_path


def facts_of(inputs: Inputs) -> list[FileFacts]:
    """Plan the input and take what is said of its files."""
    items = plan_items(inputs, inputs.listing, shard_rows=100)
    return [item for item in items if isinstance(item, FileFacts)]


def names_of(inputs: Inputs) -> list[str]:
    return [entry.name for entry in inputs.listing]
