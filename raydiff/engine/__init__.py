"""The engine: many requests, one forward at a time."""

from raydiff.engine.engine import Engine
from raydiff.engine.loop import EngineLoop

__all__ = ["Engine", "EngineLoop"]
