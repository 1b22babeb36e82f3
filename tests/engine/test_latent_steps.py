"""Rows with solvers of their own advance together as each would by its paper's loop."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from raydiff.diffusion import solvers
from raydiff.diffusion.gaussian import Level, spread
from raydiff.engine.latent_plan import SOLVERS
from raydiff.engine.latent_rows import SLOTS, X
from raydiff.engine.latent_steps import Steps, Turn
from raydiff.spec import ModelSpec, NoiseSchedule
from tests.models.tiny_embedding import OWN

WIDTH, SIZE = 3, 4
STEPS = {"ddpm": 3, "ddim": 5, "dpm++": 6, "plms": 7, "euler": 4, "heun": 5}


def spec_of(schedule: NoiseSchedule) -> ModelSpec:
    from raydiff.families import Source
    from raydiff.families.embedding import FAMILY

    return FAMILY.spec(Source(name="tiny", config={**OWN, "noise_schedule": schedule}))


def predicted(x: Tensor, time: Tensor) -> Tensor:
    """Clean embeddings that depend on the latents and on the time, row by row."""
    return torch.sin(3 * x) + spread(time) * x.flip(-1)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def turn(solver: str, evaluation: int, order: int, eta: float) -> Turn:
    heun = solver == "heun"
    step = evaluation // 2 if heun else evaluation
    return Turn(
        step=torch.tensor([step]),
        steps=torch.tensor([STEPS[solver]]),
        corrects=torch.tensor([heun and evaluation % 2 == 1]),
        solver=torch.tensor([SOLVERS.index(solver)]),
        order=torch.tensor([order]),
        eta=torch.tensor([eta]),
    )


def joined(turns: list[Turn]) -> Turn:
    names = ("step", "steps", "corrects", "solver", "order", "eta")
    return Turn(**{name: torch.cat([getattr(t, name) for t in turns]) for name in names})


def evaluations(solver: str) -> int:
    return 2 * STEPS[solver] - 1 if solver == "heun" else STEPS[solver]


def plain(steps: Steps, solver: str, order: int, eta: float, x: Tensor, fresh: Tensor) -> Tensor:
    """The same row by a loop that keeps every prediction."""

    def at(step: int) -> tuple[Tensor, Level]:
        here = Turn(**vars(turn("ddim", step, 1, 0.0)) | {"steps": torch.tensor([count])})
        return steps.evaluated_at(here), steps.now(here)

    count = STEPS[solver]
    points: list[tuple[Tensor, Tensor, Level]] = []
    for step in range(count):
        (time, now), (time_after, after) = at(step), at(step + 1)
        x0 = predicted(x, time)
        points.insert(0, (x, x0, now))
        known = (points + points[-1:] * 3)[:4]
        if solver == "ddpm":
            x = solvers.ddpm(x, x0, now, after, fresh[step])
        elif solver == "ddim":
            x = solvers.ddim(x, x0, now, after, torch.tensor([eta]), fresh[step])
        elif solver == "dpm++":
            allowed = torch.tensor([min(order, len(points))])
            x0s, levels = [p[1] for p in known[:3]], [p[2] for p in known[:3]]
            x = solvers.dpm_solver(x, x0s, levels, after, allowed)
        elif solver == "plms":
            noises = [level.noise(point, clean) for point, clean, level in known[1:]]
            x = solvers.plms(x, x0, noises, torch.tensor([min(3, step)]), now, after)
        else:
            y, tau = solvers.to_rectified(x, now)
            _, tau_after = solvers.to_rectified(x, after)
            first = now.noise(x, x0) - x0
            x = solvers.from_rectified(solvers.euler(y, first, tau, tau_after), after)
            if solver == "heun" and step < count - 1:
                x0_after = predicted(x, time_after)
                second = after.noise(x, x0_after) - x0_after
                y = solvers.heun(y, first, second, tau, tau_after)
                x = solvers.from_rectified(y, after)
    return x


@pytest.mark.parametrize("schedule", ["sqrt", "cosine", "linear", "rectified"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_rows_advance_together_as_each_alone(schedule: NoiseSchedule, order: int) -> None:
    steps, eta = Steps(spec_of(schedule)), 0.4
    begun = {name: randn(1, WIDTH, SIZE, seed=i) for i, name in enumerate(STEPS)}
    fresh = {name: randn(9, 1, WIDTH, SIZE, seed=10 + i) for i, name in enumerate(STEPS)}
    states = {name: torch.zeros((SLOTS, 1, WIDTH, SIZE)) for name in STEPS}
    for name, x in begun.items():
        states[name][X] = x
    for evaluation in range(max(map(evaluations, STEPS))):
        running = [name for name in STEPS if evaluation < evaluations(name)]
        turns = joined([turn(name, evaluation, order, eta) for name in running])
        together = torch.cat([states[name] for name in running], dim=1)
        x0 = predicted(together[X], steps.evaluated_at(turns))
        noise = torch.cat([fresh[name][min(evaluation, 8)] for name in running])
        after = steps.advance(together, x0, noise, turns)
        for row, name in enumerate(running):
            states[name] = after[:, row : row + 1]
    for name, state in states.items():
        wanted = plain(steps, name, order, eta, begun[name], fresh[name])
        torch.testing.assert_close(state[X], wanted, atol=1e-5, rtol=1e-5)


def test_solvers_differ() -> None:
    """Else the test above could not tell them apart."""
    steps = Steps(spec_of("cosine"))
    x, fresh = randn(1, WIDTH, SIZE), randn(9, 1, WIDTH, SIZE, seed=1)
    ends = [plain(steps, name, 3, 0.4, x, fresh) for name in STEPS]
    for i, one in enumerate(ends):
        for other in ends[:i]:
            assert (one - other).abs().max() > 1e-3
