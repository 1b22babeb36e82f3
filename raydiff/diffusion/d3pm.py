"""Discrete noise as Markov chains on tokens, by their transition matrices (D3PM).

Exact, and meant for small vocabularies: a chain holds T matrices [V, V]. `raydiff.diffusion.bound`
and `raydiff.diffusion.posterior` have the closed forms for large ones. Row i of a matrix is the
distribution of the next token after token i. Time 0 is clean text, step t leads from t - 1 to t.
Source: Austin et al. 2021, "Structured Denoising Diffusion Models in Discrete State-Spaces".
Shapes: T steps, V vocabulary entries, N positions; probabilities are float64.
"""

# ruff: noqa: N815 - field names carry shapes
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

BetaSchedule = Literal["linear", "cosine", "harmonic"]

COSINE_OFFSET = 0.008


def betas(schedule: BetaSchedule, steps: int, first: float = 1e-4, last: float = 0.02) -> Tensor:
    """beta_t for t = 1 to T [T]: how much noise each step adds.

    linear: from `first` to `last` (which only it reads). cosine: the share of tokens left alone
    is cos((t/T + 0.008) / 1.008 * pi/2), relative to t = 0 (Hoogeboom et al. 2021). harmonic:
    1 / (T - t + 1), with which 1 - t/T of the tokens are left alone (Sohl-Dickstein et al. 2015).
    """
    if schedule == "linear":
        return torch.linspace(first, last, steps, dtype=torch.float64)
    if schedule == "cosine":
        times = torch.arange(steps + 1, dtype=torch.float64) / steps
        kept = torch.cos((times + COSINE_OFFSET) / (1 + COSINE_OFFSET) * (math.pi / 2))
        return (1 - kept[1:] / kept[:-1]).clamp(0, 1)
    return 1 / torch.arange(steps, 0, -1, dtype=torch.float64)


def uniform_step(beta: float, size: int) -> Tensor:
    """[V, V]: with probability beta the token becomes any at random (appendix A.2.1).

    Doubly stochastic, so that its stationary distribution is uniform.
    """
    eye = torch.eye(size, dtype=torch.float64)
    return (1 - beta) * eye + beta / size


def absorbing_step(beta: float, size: int, mask_id: int) -> Tensor:
    """[V, V]: with probability beta the token becomes the mask, for good (appendix A.2.2)."""
    step = (1 - beta) * torch.eye(size, dtype=torch.float64)
    step[:, mask_id] += beta
    return step


def gaussian_step(beta: float, size: int) -> Tensor:
    """[V, V]: a discretised Gaussian over token numbers, for ordinal tokens (appendix A.2.3).

    Off the diagonal the density at the distance over the sum of the densities at all distances
    from -(V - 1) to V - 1; the diagonal takes what is left. Symmetric, hence doubly stochastic.
    `beta` is positive, `size` at least 2.
    """
    numbers = torch.arange(size, dtype=torch.float64)
    scale = 4 / ((size - 1) ** 2 * beta)
    distances = torch.arange(-(size - 1), size, dtype=torch.float64)
    total = torch.exp(-scale * distances**2).sum()
    step = torch.exp(-scale * (numbers[:, None] - numbers[None, :]) ** 2) / total
    step.fill_diagonal_(0.0)
    return step + torch.diag(1 - step.sum(dim=1))


@dataclass(frozen=True)
class Chain:
    """A noising process."""

    steps_TVV: Tensor
    """Q_t for t = 1 to T, at index t - 1."""
    until_SVV: Tensor
    """The products Q_1 ... Q_t for t = 0 to T (S = T + 1), at index t."""

    @classmethod
    def of(cls, step: Callable[[float], Tensor], betas_T: Tensor) -> Chain:
        """The chain whose step t is `step(beta_t)`."""
        steps = [step(float(beta)) for beta in betas_T]
        until = [torch.eye(steps[0].shape[0], dtype=torch.float64)]
        for matrix in steps:
            until.append(until[-1] @ matrix)
        return cls(torch.stack(steps), torch.stack(until))

    @property
    def length(self) -> int:
        """T."""
        return self.steps_TVV.shape[0]

    def noise(self, clean_N: Tensor, time_N: Tensor, uniform_N: Tensor) -> Tensor:
        """x_t [N] drawn from q(x_t | x_0), by one number in [0, 1) a position."""
        return draw(self.until_SVV[time_N, clean_N], uniform_N)

    def posterior(self, noised_N: Tensor, clean_N: Tensor, time_N: Tensor) -> Tensor:
        """q(x_{t-1} | x_t, x_0) [N, V] (eq. 3); x_t must be possible after x_0."""
        forward_NV = self.steps_TVV[time_N - 1, :, noised_N]
        joint_NV = forward_NV * self.until_SVV[time_N - 1, clean_N]
        return joint_NV / joint_NV.sum(dim=1, keepdim=True)

    def reverse(self, clean_probs_NV: Tensor, noised_N: Tensor, time_N: Tensor) -> Tensor:
        """p(x_{t-1} | x_t) [N, V] of a model that predicts x_0: the posterior's mean over x_0
        drawn from `clean_probs_NV`. What the engine's `ancestral` policy draws from.

        Clean tokens from which x_t cannot arise are left out; some other must have probability.
        """
        evidence_NV = self.until_SVV[time_N, :, noised_N]
        possible_NV = clean_probs_NV * (evidence_NV > 0)
        share_NV = possible_NV / possible_NV.sum(dim=1, keepdim=True)
        return self._back(share_NV / evidence_NV.clamp_min(1e-300), noised_N, time_N)

    def reverse_jointly(self, clean_probs_NV: Tensor, noised_N: Tensor, time_N: Tensor) -> Tensor:
        """p(x_{t-1} | x_t) [N, V] as eq. 4 has it: proportional to the sum over x_0 of
        q(x_{t-1}, x_t | x_0) p(x_0 | x_t), so that x_0 also counts by how well it explains x_t.

        Equal to `reverse` where p(x_0 | x_t) is certain, or no evidence distinguishes the x_0.
        """
        joint_NV = self._back(clean_probs_NV, noised_N, time_N)
        return joint_NV / joint_NV.sum(dim=1, keepdim=True)

    def _back(self, weights_NV: Tensor, noised_N: Tensor, time_N: Tensor) -> Tensor:
        """Sum over x_0 of q(x_{t-1}, x_t | x_0) weighted [N, V]."""
        before_NV = torch.einsum("nk,nkv->nv", weights_NV, self.until_SVV[time_N - 1])
        return before_NV * self.steps_TVV[time_N - 1, :, noised_N]

    def step_loss(
        self, clean_probs_NV: Tensor, noised_N: Tensor, clean_N: Tensor, time_N: Tensor
    ) -> Tensor:
        """The bound's term of step t in nats [N] (eq. 1): KL from `reverse` to the posterior; at
        t = 1 it is -log p(x_0 | x_1).
        """
        posterior_NV = self.posterior(noised_N, clean_N, time_N)
        return divergence(posterior_NV, self.reverse(clean_probs_NV, noised_N, time_N))

    def prior_loss(self, clean_N: Tensor, stationary_V: Tensor) -> Tensor:
        """The bound's last term in nats [N]: KL from the stationary distribution to q(x_T | x_0).

        No model takes part in it; 0 where the chain forgets x_0 in T steps, infinite for absorbing
        noise that leaves some token alone.
        """
        return divergence(self.until_SVV[-1, clean_N], stationary_V.expand(len(clean_N), -1))

    def hybrid_loss(
        self,
        logits_NV: Tensor,
        noised_N: Tensor,
        clean_N: Tensor,
        time_N: Tensor,
        entropy_weight: float,
    ) -> Tensor:
        """`step_loss` plus `entropy_weight` times the cross-entropy of x_0 [N] (eq. 5)."""
        logs_NV = logits_NV.log_softmax(dim=-1)
        entropy_N = -logs_NV.gather(1, clean_N[:, None])[:, 0]
        return self.step_loss(logs_NV.exp(), noised_N, clean_N, time_N) + entropy_weight * entropy_N


def draw(probs_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """Tokens [N] where the cumulative sum of `probs_NV` passes `uniform_N`, in [0, 1)."""
    cumulative_NV = probs_NV.cumsum(dim=-1)
    goal_N1 = uniform_N[:, None].to(probs_NV.dtype) * cumulative_NV[:, -1:]
    chosen_N = (cumulative_NV <= goal_N1).sum(dim=-1)
    # Rounding may carry the goal to the very end: stay on the last possible token.
    last_N = probs_NV.shape[1] - 1 - (probs_NV.flip(1) > 0).int().argmax(dim=-1)
    return torch.minimum(chosen_N, last_N)


def divergence(of_NV: Tensor, to_NV: Tensor) -> Tensor:
    """KL(of || to) in nats [N]; infinite where `to` lacks what `of` has."""
    terms_NV = torch.xlogy(of_NV, of_NV) - torch.xlogy(of_NV, to_NV)
    return terms_NV.sum(dim=-1)
