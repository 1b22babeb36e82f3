"""From logits to candidate tokens and their confidence, each position with its own parameters.

Shapes: N positions (of any rows), V vocabulary entries.
"""

from __future__ import annotations

import torch
from torch import Tensor


def forbid(logits_NV: Tensor, ids: Tensor) -> None:
    """Make the token `ids` impossible at every position, in place."""
    logits_NV.index_fill_(1, ids, float("-inf"))


def adjust_end(logits_NV: Tensor, end_ids: Tensor, bias: float, forbidden_N: Tensor) -> None:
    """Subtract `bias` nats from the end tokens and forbid them where `forbidden_N`, in place."""
    end_NE = logits_NV[:, end_ids] - bias
    logits_NV[:, end_ids] = end_NE.masked_fill(forbidden_N[:, None], float("-inf"))


def greedy(logits_NV: Tensor) -> tuple[Tensor, Tensor]:
    """The most likely token of each position and its probability.

    Ties go to the lowest token id. Returns (tokens_N int64, confidence_N float32).
    """
    top_N, tokens_N = logits_NV.max(dim=-1)
    return tokens_N, (top_N - logits_NV.logsumexp(dim=-1)).exp()


def margin(logits_NV: Tensor) -> Tensor:
    """(N,) float32: probability of the most likely token less that of the second."""
    top_N2 = logits_NV.topk(2, dim=-1).values
    probs_N2 = (top_N2 - logits_NV.logsumexp(dim=-1, keepdim=True)).exp()
    return probs_N2[:, 0] - probs_N2[:, 1]


def entropy(probs_NV: Tensor) -> Tensor:
    """(N,) float32: entropy in nats of probabilities; impossible tokens add nothing."""
    terms_NV: Tensor = torch.special.entr(probs_NV)
    return terms_NV.sum(dim=-1)


def tempered(logits_NV: Tensor, temperature_N: Tensor | None) -> Tensor:
    """Logits divided by each position's temperature; 0, or none at all, leaves them."""
    if temperature_N is None:
        return logits_NV
    return logits_NV / temperature_N.masked_fill(temperature_N <= 0, 1.0)[:, None]


def sample(probs_NV: Tensor, top_k_N: Tensor, top_p_N: Tensor, uniform_N: Tensor) -> Tensor:
    """Draw one token (N,) int64 a position by inverting the cumulative distribution.

    `probs_NV` are at the position's temperature. Top-k (0 means all) comes first, then top-p
    keeps the smallest set of the most likely tokens whose probability reaches it. One uniform
    number in [0, 1) a position decides, so a row's draw depends on nothing but its own generator.
    Positions with neither top-k nor top-p are drawn in the order of the vocabulary, without
    sorting it.
    """
    cut_N = (top_k_N > 0) | (top_p_N < 1)
    at = cut_N.nonzero()[:, 0]
    if len(at) == 0:
        return _draw(probs_NV, uniform_N)
    if len(at) == len(cut_N):
        return _draw_top(probs_NV, top_k_N, top_p_N, uniform_N)
    whole = (~cut_N).nonzero()[:, 0]
    tokens_N = torch.empty_like(top_k_N)
    tokens_N[whole] = _draw(probs_NV[whole], uniform_N[whole])
    tokens_N[at] = _draw_top(probs_NV[at], top_k_N[at], top_p_N[at], uniform_N[at])
    return tokens_N


def confidence(
    logits_NV: Tensor, tokens_N: Tensor, best_N: Tensor, best_confidence_N: Tensor
) -> Tensor:
    """(N,) float32: probability of `tokens_N` from that of the most likely token.

    Of untempered logits it is the confidence of LLaDA's low-confidence remasking (Nie et al. 2025).
    """
    pair_N2 = logits_NV.gather(1, torch.stack((tokens_N, best_N), dim=1))
    return best_confidence_N * (pair_N2[:, 0] - pair_N2[:, 1]).exp()


def _draw(probs_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """Tokens by inverting the cumulative distribution in the order of the vocabulary."""
    return invert(probs_NV, uniform_N, probs_NV.argmax(dim=-1))


def _draw_top(probs_NV: Tensor, top_k_N: Tensor, top_p_N: Tensor, uniform_N: Tensor) -> Tensor:
    """Tokens by inverting it in descending order, cut off by top-k and top-p."""
    sorted_NV, order_NV = probs_NV.sort(dim=-1, descending=True, stable=True)
    ranks_V = torch.arange(sorted_NV.shape[1], device=probs_NV.device)
    keep_k_N = torch.where(top_k_N > 0, top_k_N, sorted_NV.shape[1])
    sorted_NV = sorted_NV.masked_fill(ranks_V[None, :] >= keep_k_N[:, None], 0.0)
    before_NV = sorted_NV.cumsum(dim=-1) - sorted_NV
    reached_N = top_p_N * sorted_NV.sum(dim=-1)
    sorted_NV = sorted_NV.masked_fill((before_NV >= reached_N[:, None]) & (ranks_V > 0), 0.0)
    choice_N = invert(sorted_NV, uniform_N, torch.zeros_like(top_k_N))
    return order_NV.gather(1, choice_N[:, None])[:, 0]


def invert(weights_NV: Tensor, uniform_N: Tensor, best_N: Tensor) -> Tensor:
    """Index where the cumulative sum of unnormalised `weights_NV` passes `uniform_N` of its total.

    Rounding may lead past the end or, where a device sums in another order than from left to
    right, to an index without weight; then it is `best_N`.
    """
    cumulative_NV = weights_NV.cumsum(dim=-1)
    goal_N = uniform_N.to(cumulative_NV.dtype) * cumulative_NV[:, -1]
    found_N1 = torch.searchsorted(cumulative_NV, goal_N[:, None], right=True)
    choice_N1 = found_N1.clamp(max=weights_NV.shape[1] - 1)
    possible_N = weights_NV.gather(1, choice_N1)[:, 0] > 0
    return torch.where(possible_N, choice_N1[:, 0], best_N)
