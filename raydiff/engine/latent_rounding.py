"""Rounding of predicted embeddings, each row by its own rule.

Shapes: R rows, W positions, M positions that are rounded, E embedding width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from raydiff.diffusion import rounding
from raydiff.engine.latent_plan import ROUNDINGS
from raydiff.models.denoiser import LatentDenoiser

_MEASURES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "euclidean": rounding.euclidean,
    "cosine": rounding.cosine,
}


@dataclass(frozen=True, kw_only=True)
class Rounded:
    """What embeddings become, (M, ...) in the order of the picked positions."""

    tokens: Tensor
    embeddings: Tensor
    """(M, E) of the tokens; under softmax and Gumbel rounding with a temperature, expected ones."""
    entropy: Tensor
    """(M,) nats, of the head's distribution."""


class Rounder:
    """Knows the table and which tokens are never predicted."""

    def __init__(self, denoiser: LatentDenoiser) -> None:
        spec, device = denoiser.spec, denoiser.device
        self._denoiser = denoiser
        self._forbidden = torch.tensor([spec.mask_id, *spec.forbidden_ids], device=device)
        self._end_ids = torch.tensor(spec.end_ids, device=device)

    def __call__(
        self,
        x0_ME: Tensor,
        rounding_M: Tensor,
        temperature_M: Tensor,
        no_end_M: Tensor,
        uniforms_MV: Tensor | None,
    ) -> Rounded:
        """Round `x0_ME`; `rounding_M` are places in `ROUNDINGS`, no end token where `no_end_M`."""
        table_VE = self._denoiser.table().float()
        logits_MV = self._allowed(self._logits(x0_ME), no_end_M)
        tokens_M = torch.empty(len(x0_ME), dtype=torch.long, device=x0_ME.device)
        embeddings_ME = torch.empty_like(x0_ME)
        for place in sorted(set(rounding_M.tolist())):
            at, name = (rounding_M == place).nonzero()[:, 0], ROUNDINGS[place]
            if name in _MEASURES:
                scores_MV = self._allowed(_MEASURES[name](x0_ME[at], table_VE), no_end_M[at])
                warmth_M = torch.zeros_like(temperature_M[at])
            elif name == "gumbel" and uniforms_MV is not None:
                scores_MV = rounding.gumbel(logits_MV[at], temperature_M[at], uniforms_MV[at])
                warmth_M = (temperature_M[at] > 0).float()
            else:
                scores_MV, warmth_M = logits_MV[at], temperature_M[at]
            tokens_M[at] = rounding.nearest(scores_MV)
            embeddings_ME[at] = rounding.expected(scores_MV, warmth_M, table_VE)
        return Rounded(
            tokens=tokens_M, embeddings=embeddings_ME, entropy=rounding.entropy(logits_MV)
        )

    def _logits(self, x0_ME: Tensor) -> Tensor:
        return self._denoiser.logits(x0_ME.to(self._denoiser.dtype)).float()

    def _allowed(self, scores_MV: Tensor, no_end_M: Tensor) -> Tensor:
        scores_MV = scores_MV.index_fill(1, self._forbidden, float("-inf"))
        ends = scores_MV[:, self._end_ids].masked_fill(no_end_M[:, None], float("-inf"))
        return scores_MV.index_copy(1, self._end_ids, ends)
