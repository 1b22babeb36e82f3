"""Noise levels fall to clean data, and every prediction says the same of the clean embedding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.diffusion.gaussian import Level, clean, level_at, target, time_of_step
from raydiff.spec import NoiseSchedule, Prediction

SCHEDULES: tuple[NoiseSchedule, ...] = ("sqrt", "cosine", "linear", "rectified")
PREDICTIONS: tuple[Prediction, ...] = ("x0", "epsilon", "velocity")
times = st.floats(0.001, 1.0)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_noise_grows_with_time_and_time_0_is_clean(schedule: NoiseSchedule) -> None:
    level = level_at(schedule, torch.linspace(0, 1, 200, dtype=torch.float64))
    assert (level.alpha[0], level.sigma[0]) == (1.0, 0.0)
    assert (level.alpha.diff() < 0).all()
    assert (level.sigma.diff() > 0).all()
    assert level.alpha[-1] < 0.01


@pytest.mark.parametrize("schedule", ["sqrt", "cosine", "linear"])
@settings(deadline=None, max_examples=40)
@given(time=times)
def test_variance_preserving_schedules_keep_the_variance(
    schedule: NoiseSchedule, time: float
) -> None:
    level = level_at(schedule, torch.tensor([time], dtype=torch.float64))
    torch.testing.assert_close(level.alpha**2 + level.sigma**2, torch.ones(1, dtype=torch.float64))


def test_schedules_have_the_published_values() -> None:
    half = torch.tensor([0.5], dtype=torch.float64)
    assert level_at("sqrt", half).alpha.square().item() == pytest.approx(1 - 0.5001**0.5)
    # Nichol and Dhariwal's f(1/2) / f(0) with s = 0.008
    assert level_at("cosine", half).alpha.square().item() == pytest.approx(0.49384, abs=1e-5)
    # exp(-0.1 t - 19.9 t^2 / 2)
    assert level_at("linear", half).alpha.square().item() == pytest.approx(0.07906, abs=1e-5)
    assert level_at("rectified", half).alpha.item() == 0.5


@settings(deadline=None, max_examples=40)
@given(time=times, schedule=st.sampled_from(SCHEDULES), seed=st.integers(0, 99))
def test_every_prediction_implies_the_clean_embedding(
    time: float, schedule: NoiseSchedule, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x0, noise = torch.randn((2, 1, 3, 4), generator=generator, dtype=torch.float64)
    level = level_at(schedule, torch.tensor([time], dtype=torch.float64))
    x = level.mix(x0, noise)
    for prediction in PREDICTIONS:
        if prediction == "epsilon" and level.alpha.item() == 0:
            continue
        implied = clean(prediction, target(prediction, x0, noise), x, level)
        torch.testing.assert_close(implied, x0, atol=1e-8, rtol=1e-6)
    torch.testing.assert_close(level.noise(x, x0), noise, atol=1e-8, rtol=1e-6)


def test_steps_are_even_and_end_at_time_0() -> None:
    steps = torch.tensor([4, 4, 4, 10])
    time = time_of_step(torch.tensor([0, 1, 4, 10]), steps, first_time=0.8)
    torch.testing.assert_close(time, torch.tensor([0.8, 0.6, 0.0, 0.0]))


def test_half_log_snr_is_the_lambda_of_dpm_solver() -> None:
    level = Level(alpha=torch.tensor([0.6]), sigma=torch.tensor([0.8]))
    torch.testing.assert_close(level.half_log_snr, torch.tensor([0.75]).log())
