"""The simulated denoiser: a model that only its name describes, to load a fleet without weights.

    simulated:32x16=0.5s                        32 rows through 16 forwards in half a second
    simulated:32x16=0.5s,tokens=20,load=3s      texts of 20 tokens on average, a slow start

Queues, scheduling, canvases and commits are the real ones; the forward alone is simulated: it
sleeps as long as the declared roofline says and writes letters that follow from prompt and seed.
Knows no torch. `raydiff.engine.simulation` runs it.
"""

from __future__ import annotations

from raydiff.simulated.naming import PREFIX, SimulatedModel, is_simulated, simulated_model
from raydiff.simulated.shape import simulated_spec

__all__ = ["PREFIX", "SimulatedModel", "is_simulated", "simulated_model", "simulated_spec"]
