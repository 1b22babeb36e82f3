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


def sample(
    logits_NV: Tensor,
    temperature_N: Tensor,
    top_k_N: Tensor,
    top_p_N: Tensor,
    uniform_N: Tensor,
) -> tuple[Tensor, Tensor]:
    """Draw one token a position by inverting the cumulative distribution at `uniform_N`.

    Temperature scales first, then top-k (0 means all), then top-p keeps the smallest set of
    the most likely tokens whose probability reaches it. One uniform number in [0, 1) a
    position decides, so a row's draw depends on nothing but its own generator.
    The confidence is the token's probability before temperature, top-k and top-p, as in
    LLaDA's low-confidence remasking (Nie et al. 2025). Temperatures must be positive.

    Returns (tokens_N int64, confidence_N float32).
    """
    scaled_NV = logits_NV / temperature_N[:, None]
    sorted_NV, order_NV = scaled_NV.sort(dim=-1, descending=True, stable=True)
    ranks_V = torch.arange(sorted_NV.shape[1], device=logits_NV.device)
    keep_k_N = torch.where(top_k_N > 0, top_k_N, sorted_NV.shape[1])
    sorted_NV = sorted_NV.masked_fill(ranks_V[None, :] >= keep_k_N[:, None], float("-inf"))
    probs_NV = sorted_NV.softmax(dim=-1)
    before_NV = probs_NV.cumsum(dim=-1) - probs_NV
    probs_NV = probs_NV.masked_fill((before_NV >= top_p_N[:, None]) & (ranks_V > 0), 0.0)
    choice_N = _invert(probs_NV, uniform_N)
    tokens_N = order_NV.gather(1, choice_N[:, None])[:, 0]
    chosen_N = logits_NV.gather(1, tokens_N[:, None])[:, 0]
    return tokens_N, (chosen_N - logits_NV.logsumexp(dim=-1)).exp()


def _invert(probs_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """Index where the cumulative sum of unnormalised `probs_NV` passes `uniform_N` of its total."""
    cumulative_NV = probs_NV.cumsum(dim=-1)
    goal_N = uniform_N.to(cumulative_NV.dtype) * cumulative_NV[:, -1]
    choice_N = (cumulative_NV <= goal_N[:, None]).sum(dim=-1)
    # rounding may carry the goal to the very end: stay on the last possible token
    last_N = (probs_NV > 0).sum(dim=-1) - 1
    return torch.minimum(choice_N, last_N)
