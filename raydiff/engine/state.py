"""Where a canvas stands between being asked for and being finished."""

from __future__ import annotations

from enum import Enum, auto


class State(Enum):
    """Where a canvas stands."""

    WAITING = auto()
    """Not admitted, or sent back: nothing of it is on the device."""
    ENCODE_PROMPT = auto()
    DENOISE = auto()
    ENCODE_BLOCK = auto()
    """The frame is final and must join the cache before the next begins."""
    FINISHED = auto()
