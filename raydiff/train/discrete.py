"""Objectives on noised tokens: uniform noise after D3PM, discrete flow matching, and masked
diffusion.

Only positions of the target that noise may have changed are scored, never the prompt. Time t is
the noise level: a token is left alone with probability alpha = 1 - t. Sources: Austin et al. 2021
(D3PM), eq. 5, the bound with a cross-entropy beside it; Gat et al. 2024 (Discrete Flow Matching),
eq. 28, with a masked source and the path kappa = 1 - t; Nie et al. 2025 (LLaDA), eq. 3, 1/t.
Shapes: B documents, R noised copies of each target, L target positions, M scored positions, V
vocabulary entries.
"""

# ruff: noqa: N815 - field names carry shapes
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from raydiff.diffusion.bound import uniform_kl
from raydiff.models.denoiser import Denoiser
from raydiff.train.batches import Ints, TokenisedPairs, prompt
from raydiff.train.layout import Prompts, lay_out, target_hidden
from raydiff.train.objective import fill

Kind = Literal["uniform", "discrete-flow", "masked"]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class DiscreteSettings:
    """How targets are noised and scored."""

    copies: int = 3
    """Noised copies of each target in a batch."""
    target_tokens: int = 24
    """Length of a target, end tokens included."""
    least_noise: float = 0.1
    """Smallest noise level of masked noise; below it 1/t only adds variance."""
    full_noise_share: float = 0.2
    """Share of copies at t = 1, where decoding begins."""
    fill_share: float = 0.25
    """Share of the end tokens after the first that are scored."""
    whole_share: float = 0.0
    """Share of batches in which prompt and target are noised alike, as when LLaDA is pretrained;
    for full attention only."""
    diffusion_steps: int = 64
    """Steps of the chain whose bound uniform noise is trained on."""
    entropy_weight: float = 1.0
    """Weight of the cross-entropy beside the bound (D3PM's lambda)."""


@dataclass(frozen=True)
class DiscreteBatch:
    """One shard's tensors; `scored_M` indexes the flattened [B * R * L] target positions."""

    prompts: Prompts
    noised_BRL: Tensor
    scored_M: Tensor
    targets_M: Tensor
    weights_M: Tensor
    time_M: Tensor


class DiscreteObjective:
    """Trains one kind of noise on tokens; implements `raydiff.train.trainer.Objective`."""

    def __init__(
        self,
        kind: Kind,
        denoiser: Denoiser,
        pairs: TokenisedPairs,
        settings: DiscreteSettings,
        document_tokens: int,
    ) -> None:
        self._kind, self._denoiser, self._pairs = kind, denoiser, pairs
        self._settings, self._document_tokens = settings, document_tokens

    def draw(
        self, rows: Ints, generator: np.random.Generator, shared: np.random.Generator
    ) -> DiscreteBatch:
        """See `Objective.draw`."""
        settings, spec = self._settings, self._denoiser.spec
        prompts = [prompt(self._pairs.documents[row], self._document_tokens) for row in rows]
        targets = [self._pairs.summaries[row] for row in rows]
        length, copies = settings.target_tokens, settings.copies
        if shared.random() < settings.whole_share:
            targets = [np.concatenate(parts) for parts in zip(prompts, targets, strict=True)]
            length += self._document_tokens + 2
            prompts = [row[:0] for row in prompts]
        clean_BL = np.stack([fill(row, length) for row in targets])
        lengths_B = np.array([min(len(row) + 1, length) for row in targets])
        clean_BRL = np.repeat(clean_BL[:, None, :], copies, axis=1)
        time_BR = self._times(len(rows), generator)
        changed_BRL = generator.random(clean_BRL.shape) < time_BR[:, :, None]
        if self._kind == "uniform":
            noise_BRL: Ints = generator.integers(0, spec.vocab_size, clean_BRL.shape)
        else:
            noise_BRL = np.full_like(clean_BRL, spec.mask_id)
        weights_BRL = self._weights(lengths_B, time_BR, changed_BRL, generator)
        scored_M = np.flatnonzero(weights_BRL)
        scale = lengths_B.sum() * copies
        return DiscreteBatch(
            prompts=lay_out(prompts, length, spec),
            noised_BRL=torch.from_numpy(np.where(changed_BRL, noise_BRL, clean_BRL)),
            scored_M=torch.from_numpy(scored_M),
            targets_M=torch.from_numpy(clean_BRL.ravel()[scored_M]),
            weights_M=torch.from_numpy(weights_BRL.ravel()[scored_M] / scale).float(),
            time_M=torch.from_numpy(np.repeat(time_BR, length)[scored_M]).float(),
        )

    def loss(self, shard: DiscreteBatch) -> tuple[Tensor, Tensor]:
        """See `Objective.loss`."""
        hidden_BRLD = target_hidden(self._denoiser, shard.prompts, shard.noised_BRL)
        hidden_MD = hidden_BRLD.flatten(0, 2).index_select(0, shard.scored_M)
        logits_MV = self._denoiser.logits(hidden_MD).float()
        entropy_M = cross_entropy(logits_MV, shard.targets_M, reduction="none")
        losses_M = entropy_M
        if self._kind == "uniform":
            noised_M = shard.noised_BRL.flatten()[shard.scored_M]
            bound_M = self._bound(logits_MV, noised_M, shard)
            losses_M = bound_M + self._settings.entropy_weight * entropy_M
        return (losses_M * shard.weights_M).sum(), entropy_M[shard.time_M >= 1]

    def _bound(self, logits_MV: Tensor, noised_M: Tensor, shard: DiscreteBatch) -> Tensor:
        """An unbiased estimate of the bound of each position's negative log-likelihood [M]."""
        steps = self._settings.diffusion_steps
        alpha_t_M = 1 - shard.time_M
        alpha_s_M = (alpha_t_M + 1 / steps).clamp_max(1.0)
        return steps * uniform_kl(logits_MV, noised_M, shard.targets_M, alpha_s_M, alpha_t_M)

    def _times(self, rows: int, generator: np.random.Generator) -> Floats:
        """t in (0, 1] for each copy [B, R], spread evenly over a document's copies."""
        settings = self._settings
        start_B1 = generator.random((rows, 1))
        level_BR = (start_B1 + np.arange(settings.copies) / settings.copies) % 1.0
        level_BR = level_BR / (1 - settings.full_noise_share)
        if self._kind == "uniform":
            steps = settings.diffusion_steps
            return np.clip(np.ceil(level_BR * steps), 1, steps) / steps
        least = settings.least_noise
        times_BR: Floats = np.minimum(least + (1 - least) * level_BR, 1.0)
        return times_BR

    def _weights(
        self, lengths_B: Ints, time_BR: Floats, changed_BRL: Bools, generator: np.random.Generator
    ) -> Floats:
        """Weights of the target positions [B, R, L]; zero where nothing is scored. `lengths_B`
        counts tokens up to and with the first end token.
        """
        fill_BL = np.arange(changed_BRL.shape[2]) >= lengths_B[:, None]
        kept_BRL = generator.random(changed_BRL.shape) < self._settings.fill_share
        scored_BRL = ~fill_BL[:, None, :] | kept_BRL
        if self._kind == "uniform":
            return scored_BRL.astype(np.float64)
        scored_BRL = scored_BRL & changed_BRL
        if self._kind == "masked":
            return scored_BRL / time_BR[:, :, None]
        return scored_BRL.astype(np.float64)
