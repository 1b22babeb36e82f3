"""Block: the positions of a frame that commit next, and how far their denoising has come. Numpy
only.

Shapes: F positions of the frame.
"""

from __future__ import annotations

from raydiff.decoding import Decoding
from raydiff.diffusion.schedule import quotas, timestep_quotas
from raydiff.engine.frame import Bools, Frame
from raydiff.engine.history import History


class Block:
    """Begins at step 0 with nothing remembered."""

    def __init__(self, frame: Frame, decoding: Decoding) -> None:
        self.place = frame.block()
        self.mask: Bools = frame.within(self.place)
        """(F,) which positions are the block's."""
        self.step = 0
        """Forwards so far, those passed over included."""
        self.full_steps = 0
        """Forwards that saw the block without an open position."""
        self.history = History(len(frame))
        self._steps = decoding.steps
        self._quotas = _quotas(int((frame.open & self.mask).sum()), decoding)

    @property
    def at_least(self) -> int:
        """Positions that the next forward commits at least."""
        return self._quotas[self.step] if self.step < len(self._quotas) else 1

    def times(self) -> tuple[float, float]:
        """Noise levels before and after the next forward: from 1 to 0 in equal steps."""
        if not self._steps:
            return 1.0, 0.0
        return 1.0 - self.step / self._steps, max(0.0, 1.0 - (self.step + 1) / self._steps)


def _quotas(positions: int, decoding: Decoding) -> tuple[int, ...]:
    if not decoding.steps:
        return ()
    spread = timestep_quotas if decoding.schedule == "timestep" else quotas
    return spread(positions, decoding.steps)
