"""Lack of memory, however torch reports it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from raydiff.errors import OutOfMemory


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turn every way in which torch reports a lack of memory into OutOfMemory."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise OutOfMemory(f"A forward ran out of memory: {error}") from error
    except RuntimeError as error:
        if "allocate" in str(error) and "memory" in str(error):
            raise OutOfMemory(f"A forward ran out of memory: {error}") from error
        raise
