"""One solver step of rows with solvers of their own.

Shapes: R rows, W positions, E embedding width, S slots of a row's state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from raydiff.diffusion import solvers
from raydiff.diffusion.gaussian import Level, level_at, time_of_step
from raydiff.engine.latent_plan import SOLVERS
from raydiff.engine.latent_rows import ANCHOR, FIRST, SECOND, THIRD, X
from raydiff.spec import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Where rows stand in their steps; (R,) each."""

    step: Tensor
    steps: Tensor
    corrects: Tensor
    solver: Tensor
    order: Tensor
    eta: Tensor

    def rows(self, at: Tensor) -> Turn:
        """The turns of some rows."""
        return Turn(**{field.name: getattr(self, field.name)[at] for field in fields(self)})


class Steps:
    """Levels and steps under a spec's noise schedule."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec

    def evaluated_at(self, turn: Turn) -> Tensor:
        """(R,) time at which the network is evaluated: a correction's is that of the step's end."""
        return self._time(turn, turn.corrects.long())

    def level(self, time_R: Tensor) -> Level:
        """Levels at times."""
        return level_at(self._spec.noise_schedule, time_R)

    def advance(self, states: Tensor, x0_RWE: Tensor, noise_RWE: Tensor, turn: Turn) -> Tensor:
        """The rows' next states (S, R, W, E), from clean embeddings predicted at their X."""
        after = torch.empty_like(states)
        for place in sorted(set(turn.solver.tolist())):
            at = (turn.solver == place).nonzero()[:, 0]
            step = _STEPS[SOLVERS[place]]
            after[:, at] = step(self, states[:, at], x0_RWE[at], noise_RWE[at], turn.rows(at))
        return after

    def now(self, turn: Turn, back: int = 0) -> Level:
        """Levels before the step, or so many steps earlier (those of the first, before it)."""
        return self.level(self._time(turn, -back))

    def after(self, turn: Turn) -> Level:
        """Levels after the step."""
        return self.level(self._time(turn, 1))

    def _time(self, turn: Turn, ahead: Tensor | int) -> Tensor:
        step_R = (turn.step + ahead).clamp(min=0)
        return time_of_step(step_R, turn.steps, self._spec.first_time)


_Step = Callable[[Steps, Tensor, Tensor, Tensor, Turn], Tensor]


def _pushed(states: Tensor, x_RWE: Tensor, newest_RWE: Tensor) -> Tensor:
    """New states: `newest_RWE` joins the history in front."""
    return torch.stack([x_RWE, states[ANCHOR], newest_RWE, states[FIRST], states[SECOND]])


def _ddpm(steps: Steps, states: Tensor, x0: Tensor, noise: Tensor, turn: Turn) -> Tensor:
    return _pushed(
        states, solvers.ddpm(states[X], x0, steps.now(turn), steps.after(turn), noise), x0
    )


def _ddim(steps: Steps, states: Tensor, x0: Tensor, noise: Tensor, turn: Turn) -> Tensor:
    x = solvers.ddim(states[X], x0, steps.now(turn), steps.after(turn), turn.eta, noise)
    return _pushed(states, x, x0)


def _dpm(steps: Steps, states: Tensor, x0: Tensor, noise: Tensor, turn: Turn) -> Tensor:
    x0s = (x0, states[FIRST], states[SECOND])
    levels = [steps.now(turn, back) for back in range(3)]
    order_R = torch.minimum(turn.order, turn.step + 1)
    x = solvers.dpm_solver(states[X], x0s, levels, steps.after(turn), order_R)
    return _pushed(states, x, x0)


def _plms(steps: Steps, states: Tensor, x0: Tensor, noise: Tensor, turn: Turn) -> Tensor:
    now = steps.now(turn)
    older = (states[FIRST], states[SECOND], states[THIRD])
    x = solvers.plms(states[X], x0, older, turn.step.clamp(max=3), now, steps.after(turn))
    return _pushed(states, x, now.noise(states[X], x0))


def _euler(steps: Steps, states: Tensor, x0: Tensor, noise: Tensor, turn: Turn) -> Tensor:
    now, after = steps.now(turn), steps.after(turn)
    y, time_R = solvers.to_rectified(states[X], now)
    y = solvers.euler(y, now.noise(states[X], x0) - x0, time_R, _rectified_time(after))
    return _pushed(states, solvers.from_rectified(y, after), x0)


def _heun(steps: Steps, states: Tensor, x0: Tensor, noise: Tensor, turn: Turn) -> Tensor:
    """Predictor and corrector are evaluations of their own, in whichever a row happens to be."""
    now, after = steps.now(turn), steps.after(turn)
    here = steps.level(steps.evaluated_at(turn))
    velocity = here.noise(states[X], x0) - x0
    begun = torch.where(turn.corrects[:, None, None], states[ANCHOR], states[X])
    first = torch.where(turn.corrects[:, None, None], states[FIRST], velocity)
    y, time_R = solvers.to_rectified(begun, now)
    second = torch.where(turn.corrects[:, None, None], velocity, first)
    y = solvers.heun(y, first, second, time_R, _rectified_time(after))
    x = solvers.from_rectified(y, after)
    return torch.stack([x, begun, first, states[SECOND], states[THIRD]])


def _rectified_time(level: Level) -> Tensor:
    return level.sigma / (level.alpha + level.sigma)


_STEPS: dict[str, _Step] = {
    "ddpm": _ddpm,
    "ddim": _ddim,
    "dpm++": _dpm,
    "plms": _plms,
    "euler": _euler,
    "heun": _heun,
}
