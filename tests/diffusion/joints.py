"""Toy joint distributions with an oracle for p(x0 | x_t), and histograms of samples.

Shapes: R rows, W positions, V vocabulary entries, S states of the joint (V ** W).
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor


class Joint:
    """Tokens 1..V-1 at W positions, strongly dependent on each other; token 0 is the mask, or
    under uniform noise simply never in the data."""

    def __init__(self, width: int, tokens: int, seed: int, vocab: int | None = None) -> None:
        self.width, self.vocab = width, vocab or tokens + 1
        first = self.vocab - tokens
        states = list(itertools.product(range(first, self.vocab), repeat=width))
        self.states_SW = torch.tensor(states)
        noise_S = torch.randn(len(states), generator=torch.Generator().manual_seed(seed))
        self.probs_S = (noise_S * 2.5).softmax(0)
        one_hot = torch.nn.functional.one_hot(self.states_SW, self.vocab)
        self._hot_SWV = one_hot.float()

    def absorbing(self, tokens: Tensor, is_open: Tensor, time: float) -> Tensor:
        """Logits of p(x0 at each position | the closed tokens)."""
        agrees_RSW = (tokens[:, None] == self.states_SW) | is_open[:, None]
        return self._marginals(agrees_RSW.all(dim=2) * self.probs_S)

    def uniform(self, tokens: Tensor, is_open: Tensor, time: float) -> Tensor:
        """Logits of p(x0 at each position | x_t) under uniform noise with alpha = 1 - time."""
        hit_RSW = (tokens[:, None] == self.states_SW).float()
        likelihood_RS = (hit_RSW * (1 - time) + time / self.vocab).prod(dim=2)
        return self._marginals(likelihood_RS * self.probs_S)

    def _marginals(self, weights_RS: Tensor) -> Tensor:
        probs_RWV = torch.einsum("rs,swv->rwv", weights_RS, self._hot_SWV)
        return (probs_RWV / probs_RWV.sum(-1, keepdim=True)).log()

    def product(self) -> Tensor:
        """(S,) probabilities if the positions were independent with the same marginals."""
        marginals_WV = torch.einsum("s,swv->wv", self.probs_S, self._hot_SWV)
        places = torch.arange(self.width)
        return marginals_WV[places, self.states_SW].prod(dim=1)

    def histogram(self, samples_RW: Tensor) -> Tensor:
        """(S,) shares of the states among samples."""
        base_W = self.vocab ** torch.arange(self.width)
        counts = torch.bincount((samples_RW * base_W).sum(1), minlength=self.vocab**self.width)
        return counts[(self.states_SW * base_W).sum(1)] / len(samples_RW)


def distance(left_S: Tensor, right_S: Tensor) -> float:
    """Total variation."""
    return float((left_S - right_S).abs().sum() / 2)
