"""raydiff: diffusion language models in bulk and online on Ray.

Importing this package loads neither torch nor ray; the heavy names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from raydiff.errors import RaydiffError
from raydiff.request import Completion, Decoding, Event, GenerationRequest, Usage
from raydiff.version import __version__

if TYPE_CHECKING:
    from raydiff.engine import Engine

_LAZY = {"Engine": "raydiff.engine"}

__all__ = [
    "Completion",
    "Decoding",
    "Engine",
    "Event",
    "GenerationRequest",
    "RaydiffError",
    "Usage",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'raydiff' has no attribute {name!r}")
