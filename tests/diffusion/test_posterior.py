"""The posterior of uniform noise, against matrices."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from raydiff.diffusion.posterior import draw_posterior, uniform_posterior, uniform_tokens

SIZE = 5


def transition(alpha: Tensor) -> Tensor:
    """(V, V): a token stays with probability alpha, else becomes any."""
    return alpha * torch.eye(SIZE, dtype=alpha.dtype) + (1 - alpha) / SIZE


def by_matrices(alpha_t: Tensor, alpha_s: Tensor, noised: int, clean: int) -> Tensor:
    """(V,) q(x_s | x_t, x_0) by Bayes' rule."""
    joint = transition(alpha_s)[clean] * transition(alpha_t / alpha_s)[:, noised]
    return joint / joint.sum()


@settings(deadline=None)
@given(
    t=st.floats(0.01, 1),
    share=st.floats(0, 0.99),
    noised=st.integers(0, 4),
    clean=st.integers(0, 4),
)
def test_the_closed_form_is_bayes_rule(t: float, share: float, noised: int, clean: int) -> None:
    alpha_t, alpha_s = torch.tensor([1 - t, 1 - share * t], dtype=torch.float64)
    stay, back, noise = uniform_posterior(torch.tensor(noised == clean), alpha_t, alpha_s, SIZE)
    probs = (noise / SIZE).repeat(SIZE)
    probs[noised] += stay
    probs[clean] += back
    torch.testing.assert_close(probs, by_matrices(alpha_t, alpha_s, noised, clean))


def test_at_time_zero_the_posterior_is_the_clean_token() -> None:
    one, half = torch.tensor(1.0), torch.tensor(0.5)
    for same in (False, True):
        stay, back, noise = uniform_posterior(torch.tensor(same), half, one, SIZE)
        assert noise == 0
        assert same or (stay == 0 and back == 1)


def test_a_draw_follows_the_posterior() -> None:
    """Over an even grid of uniforms each case comes as often as its share says."""
    n = 10_000
    choice = (torch.arange(n) + 0.5) / n
    alpha_t, alpha_s = torch.tensor(0.3), torch.tensor(0.6)
    posterior = uniform_posterior(torch.tensor(False), alpha_t, alpha_s, SIZE)
    noised, clean, noise = (torch.full((n,), value) for value in (0, 1, 2))
    drawn = draw_posterior(noised, clean, posterior, choice, noise)
    share = torch.bincount(drawn, minlength=3) / n
    torch.testing.assert_close(share, torch.stack(list(posterior)), atol=2e-4, rtol=0)


def test_random_tokens_cover_the_vocabulary_evenly() -> None:
    uniform = torch.cat(((torch.arange(7000) + 0.5) / 7000, torch.tensor([0.0, 1 - 2**-24])))
    counts = torch.bincount(uniform_tokens(uniform, 7), minlength=7)
    assert counts.tolist() == [1001, 1000, 1000, 1000, 1000, 1000, 1001]
    assert int(uniform_tokens(torch.tensor([1 - 2**-24]), 262_143)) == 262_142
