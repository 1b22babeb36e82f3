"""Solvers agree where they should, have their order, and reach the distribution of known scores.

The known case: data are Gaussian with mean M and deviation S, so that the clean value expected of x
at a level is M + alpha S^2 (x - alpha M) / (alpha^2 S^2 + sigma^2), and the exact flow keeps
(x - alpha M) / sqrt(alpha^2 S^2 + sigma^2).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from raydiff.diffusion import solvers
from raydiff.diffusion.gaussian import Level, level_at, spread
from raydiff.spec import NoiseSchedule

M, S = 1.5, 0.4
SCHEDULES: tuple[NoiseSchedule, ...] = ("sqrt", "cosine", "linear", "rectified")

schedules = st.sampled_from(SCHEDULES)
levels_apart = st.tuples(st.floats(0.05, 0.99), st.floats(0.0, 0.95))


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def apart(schedule: NoiseSchedule, pair: tuple[float, float]) -> tuple[Level, Level]:
    now, share = pair
    return level_at(schedule, double(now)), level_at(schedule, double(now * share))


def expected_x0(x: Tensor, level: Level) -> Tensor:
    alpha, sigma = spread(level.alpha), spread(level.sigma)
    return M + alpha * S**2 * (x - alpha * M) / (alpha**2 * S**2 + sigma**2)


def exact(z: Tensor, level: Level) -> Tensor:
    alpha, sigma = spread(level.alpha), spread(level.sigma)
    return alpha * M + (alpha**2 * S**2 + sigma**2).sqrt() * z


def rectified_step(x: Tensor, x0: Tensor, now: Level, after: Level) -> Tensor:
    """Euler on the rectified path that the levels lie on."""
    y, time = solvers.to_rectified(x, now)
    _, time_after = solvers.to_rectified(x, after)
    velocity = now.noise(x, x0) - x0
    return solvers.from_rectified(solvers.euler(y, velocity, time, time_after), after)


class TestAgreement:
    @settings(deadline=None, max_examples=40)
    @given(schedule=schedules, pair=levels_apart, seed=st.integers(0, 99))
    def test_ddim_with_eta_1_is_ddpm(
        self, schedule: NoiseSchedule, pair: tuple[float, float], seed: int
    ) -> None:
        now, after = apart(schedule, pair)
        x, x0, noise = randn(3, 1, 4, 5, seed=seed)
        ddim = solvers.ddim(x, x0, now, after, double(1.0), noise)
        torch.testing.assert_close(ddim, solvers.ddpm(x, x0, now, after, noise))

    @settings(deadline=None, max_examples=40)
    @given(schedule=schedules, pair=levels_apart, seed=st.integers(0, 99))
    def test_dpm_solver_of_order_1_is_deterministic_ddim(
        self, schedule: NoiseSchedule, pair: tuple[float, float], seed: int
    ) -> None:
        now, after = apart(schedule, pair)
        x, x0, noise = randn(3, 1, 4, 5, seed=seed)
        ddim = solvers.ddim(x, x0, now, after, double(0.0), noise)
        dpm = solvers.dpm_solver(x, (x0, x, x), (now, now, now), after, torch.tensor([1]))
        torch.testing.assert_close(dpm, ddim)

    @settings(deadline=None, max_examples=40)
    @given(schedule=schedules, pair=levels_apart, seed=st.integers(0, 99))
    def test_euler_on_the_rectified_path_is_deterministic_ddim(
        self, schedule: NoiseSchedule, pair: tuple[float, float], seed: int
    ) -> None:
        now, after = apart(schedule, pair)
        x, x0, noise = randn(3, 1, 4, 5, seed=seed)
        ddim = solvers.ddim(x, x0, now, after, double(0.0), noise)
        torch.testing.assert_close(rectified_step(x, x0, now, after), ddim)

    @settings(deadline=None, max_examples=40)
    @given(schedule=schedules, pair=levels_apart, seed=st.integers(0, 99))
    def test_plms_without_history_is_deterministic_ddim(
        self, schedule: NoiseSchedule, pair: tuple[float, float], seed: int
    ) -> None:
        now, after = apart(schedule, pair)
        x, x0, noise = randn(3, 1, 4, 5, seed=seed)
        ddim = solvers.ddim(x, x0, now, after, double(0.0), noise)
        plms = solvers.plms(x, x0, (noise, noise, noise), torch.tensor([0]), now, after)
        torch.testing.assert_close(plms, ddim)

    @settings(deadline=None, max_examples=40)
    @given(schedule=schedules, pair=levels_apart)
    def test_prediction_that_never_changes_needs_no_higher_order(
        self, schedule: NoiseSchedule, pair: tuple[float, float]
    ) -> None:
        now, after = apart(schedule, pair)
        x, x0 = randn(2, 1, 4, 5)
        levels = (now, level_at(schedule, double(0.995)), level_at(schedule, double(0.999)))
        first, *higher = (
            solvers.dpm_solver(x, (x0, x0, x0), levels, after, torch.tensor([order]))
            for order in (1, 2, 3)
        )
        for x_after in higher:
            torch.testing.assert_close(x_after, first)

    @pytest.mark.parametrize("schedule", SCHEDULES)
    @pytest.mark.parametrize("time", [1.0, 0.3])
    def test_every_step_to_clean_data_gives_the_predicted_embedding(
        self, schedule: NoiseSchedule, time: float
    ) -> None:
        now, after = level_at(schedule, double(time)), level_at(schedule, double(0.0))
        x, x0, noise = randn(3, 1, 4, 5)
        history = (level_at(schedule, double(0.7)), level_at(schedule, double(0.8)))
        steps = [
            solvers.ddpm(x, x0, now, after, noise),
            solvers.ddim(x, x0, now, after, double(0.5), noise),
            solvers.dpm_solver(x, (x0, x, noise), (now, *history), after, torch.tensor([3])),
            solvers.plms(x, x0, (noise, noise, noise), torch.tensor([3]), now, after),
            rectified_step(x, x0, now, after),
        ]
        for reached in steps:
            torch.testing.assert_close(reached, x0)

    def test_deterministic_ddim_ignores_its_noise(self) -> None:
        now, after = apart("sqrt", (0.7, 0.5))
        x, x0, noise = randn(3, 1, 4, 5)
        one, other = (
            solvers.ddim(x, x0, now, after, double(0.0), values) for values in (noise, -noise)
        )
        assert torch.equal(one, other)


Stepper = Callable[[Tensor, list[Tensor], list[Level], Level], Tensor]
"""(x, clean embeddings expected now and at three levels before, those levels, level after)."""


def ddim_step(x: Tensor, x0s: list[Tensor], levels: list[Level], after: Level) -> Tensor:
    return solvers.ddim(x, x0s[0], levels[0], after, double(0.0), torch.zeros_like(x))


def dpm_step(order: int) -> Stepper:
    def step(x: Tensor, x0s: list[Tensor], levels: list[Level], after: Level) -> Tensor:
        return solvers.dpm_solver(x, x0s[:3], levels[:3], after, torch.tensor([order]))

    return step


def plms_step(x: Tensor, x0s: list[Tensor], levels: list[Level], after: Level) -> Tensor:
    noises = [level.noise(x0_at, x0) for x0_at, x0, level in zip(PAST, x0s, levels, strict=True)]
    return solvers.plms(x, x0s[0], noises[1:], torch.tensor([3]), levels[0], after)


PAST: list[Tensor] = []
"""Where the expectations handed to a stepper were made, the newest first."""


def heun_step(x: Tensor, x0s: list[Tensor], levels: list[Level], after: Level) -> Tensor:
    now = levels[0]
    y, time = solvers.to_rectified(x, now)
    _, time_after = solvers.to_rectified(x, after)
    first = now.noise(x, x0s[0]) - x0s[0]
    guess = solvers.from_rectified(solvers.euler(y, first, time, time_after), after)
    second = after.noise(guess, expected_x0(guess, after)) - expected_x0(guess, after)
    return solvers.from_rectified(solvers.heun(y, first, second, time, time_after), after)


def error(step: Stepper, times: np.ndarray, schedule: NoiseSchedule) -> float:
    """Largest distance from the exact flow along `times` (falling, the first four exact)."""
    z = torch.full((1, 1, 1), 0.8, dtype=torch.float64)
    levels = [level_at(schedule, double(float(t))) for t in times]
    past = [exact(z, level) for level in levels[:4]]
    for i in range(3, len(levels) - 1):
        PAST[:] = past[::-1][:4]
        seen = levels[i - 3 : i + 1][::-1]
        x0s = [expected_x0(x, level) for x, level in zip(PAST, seen, strict=True)]
        past.append(step(past[-1], x0s, seen, levels[i + 1]))
    distances = [abs(float(x - exact(z, level))) for x, level in zip(past, levels, strict=True)]
    return max(distances)


def slope(step: Stepper, grid: Callable[[int], np.ndarray], schedule: NoiseSchedule) -> float:
    counts = np.array([64, 128, 256])
    errors = [error(step, grid(int(count)), schedule) for count in counts]
    return -float(np.polyfit(np.log(counts), np.log(errors), 1)[0])


def even_times(steps: int) -> np.ndarray:
    """From 0.8 down to 0.1, and three steps before, whose values are exact."""
    width = 0.7 / steps
    return 0.8 - width * np.arange(-3, steps + 1)


def even_noise_ratios(steps: int) -> np.ndarray:
    """Times of the rectified path at which sigma / alpha falls evenly."""
    ratios = 2.0 - 1.8 / steps * np.arange(-3, steps + 1)
    return ratios / (1 + ratios)


class TestOrder:
    @pytest.mark.parametrize(
        ("step", "order"),
        [(ddim_step, 1), (dpm_step(1), 1), (dpm_step(2), 2), (dpm_step(3), 3), (heun_step, 2)],
        ids=["ddim", "dpm++1", "dpm++2", "dpm++3", "heun"],
    )
    @pytest.mark.parametrize("schedule", ["cosine", "rectified"])
    def test_error_falls_with_the_order_of_the_solver(
        self, step: Stepper, order: int, schedule: NoiseSchedule
    ) -> None:
        assert slope(step, even_times, schedule) == pytest.approx(order, abs=0.3)

    def test_plms_has_order_4_where_the_noise_ratio_falls_evenly(self) -> None:
        assert slope(plms_step, even_noise_ratios, "rectified") == pytest.approx(4, abs=0.5)

    def test_plms_has_order_2_on_even_times(self) -> None:
        assert slope(plms_step, even_times, "cosine") == pytest.approx(2, abs=0.4)


def sample(solver: str, schedule: NoiseSchedule, steps: int, rows: int = 20000) -> Tensor:
    """Draws of a solver with the exact expectation, from noise to clean data."""
    x = randn(1, rows, 1)
    fresh = randn(steps, 1, rows, 1, seed=1)
    times = np.linspace(1, 0, steps + 1)
    for i in range(steps):
        now, after = (level_at(schedule, double(float(t))) for t in times[i : i + 2])
        x0 = expected_x0(x, now)
        if solver == "ddpm":
            x = solvers.ddpm(x, x0, now, after, fresh[i])
        else:
            x = rectified_step(x, x0, now, after)
    return x


class TestDistribution:
    @pytest.mark.parametrize(
        ("solver", "schedule"), [("ddpm", "cosine"), ("ddpm", "linear"), ("euler", "rectified")]
    )
    def test_exact_score_recovers_mean_and_variance(
        self, solver: str, schedule: NoiseSchedule
    ) -> None:
        x = sample(solver, schedule, steps=300)
        assert float(x.mean()) == pytest.approx(M, abs=5 * S / math.sqrt(20000) + 0.01)
        assert float(x.std()) == pytest.approx(S, rel=0.04)

    def test_more_steps_come_closer_to_the_variance(self) -> None:
        few, many = (abs(float(sample("ddpm", "cosine", n).std()) - S) for n in (5, 200))
        assert many < few / 5


class TestRows:
    @settings(deadline=None, max_examples=40)
    @given(
        times=st.lists(st.floats(0.05, 1.0), min_size=1, max_size=5),
        orders=st.lists(st.integers(1, 3), min_size=5, max_size=5),
        schedule=schedules,
        seed=st.integers(0, 99),
    )
    def test_row_alone_equals_the_row_in_any_batch(
        self, times: list[float], orders: list[int], schedule: NoiseSchedule, seed: int
    ) -> None:
        rows = len(times)
        time = double(*times)
        now, after = level_at(schedule, time), level_at(schedule, time * 0.6)
        older = [level_at(schedule, (time * 1.1).clamp(max=1.0)), level_at(schedule, time * 0 + 1)]
        x, x0, noise, before, earlier = randn(5, rows, 3, 2, seed=seed)
        order, eta = torch.tensor(orders[:rows]), torch.linspace(0, 1, rows, dtype=torch.float64)

        def steps(at: slice) -> list[Tensor]:
            here, there = cut(now, at), cut(after, at)
            past = [here, *(cut(level, at) for level in older)]
            history = (x0[at], before[at], earlier[at])
            return [
                solvers.ddpm(x[at], x0[at], here, there, noise[at]),
                solvers.ddim(x[at], x0[at], here, there, eta[at], noise[at]),
                solvers.dpm_solver(x[at], history, past, there, order[at]),
                solvers.plms(x[at], x0[at], history, order[at], here, there),
                rectified_step(x[at], x0[at], here, there),
            ]

        whole = steps(slice(0, rows))
        for row in range(rows):
            for alone, beside in zip(steps(slice(row, row + 1)), whole, strict=True):
                assert torch.equal(alone[0], beside[row])


def cut(level: Level, at: slice) -> Level:
    return Level(alpha=level.alpha[at], sigma=level.sigma[at])
