"""The engine: many requests, one forward at a time.

The heavy names load on first use, so that `raydiff.engine.validation` needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raydiff.engine.engine import Engine
    from raydiff.engine.loop import EngineLoop

_LAZY = {"Engine": "raydiff.engine.engine", "EngineLoop": "raydiff.engine.loop"}

__all__ = ["Engine", "EngineLoop"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'raydiff.engine' has no attribute {name!r}")
