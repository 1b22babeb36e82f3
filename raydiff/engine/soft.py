"""Self-conditioning: each row's expected embeddings of the forward before, on the device.

Shapes: R rows, W window positions, D hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from raydiff.engine.frame import Ints
from raydiff.engine.plan import DenoisePlan
from raydiff.models.denoiser import Denoiser


class SoftRows:
    """Rows begin with zeros, and again at each frame (Chen et al. 2023, Analog Bits)."""

    def __init__(self, denoiser: Denoiser) -> None:
        self._width = denoiser.spec.hidden_size
        self._dtype, self._device = denoiser.dtype, denoiser.device
        self._rows: dict[str, Tensor] = {}

    def read(self, plan: DenoisePlan, order: Ints) -> Tensor:
        """(R + G, W, D) for the plan's rows in `order`; a guided row's twin has its own."""
        assert plan.fresh is not None
        ids = [*range(len(plan.request_ids)), *plan.guided.tolist()]
        soft_RWD = torch.zeros(
            (*plan.tokens.shape, self._width), dtype=self._dtype, device=self._device
        )
        for place, row in enumerate(order.tolist()):
            at = ids[row]
            if not plan.fresh[at]:
                kept_WD = self._rows[plan.request_ids[at]]
                soft_RWD[place, : len(kept_WD)] = kept_WD[: soft_RWD.shape[1]]
        return soft_RWD

    def keep(self, request_ids: Sequence[str], soft_RWD: Tensor) -> None:
        """Remember a forward's expected embeddings."""
        for request_id, row_WD in zip(request_ids, soft_RWD.unbind(0), strict=True):
            self._rows[request_id] = row_WD

    def release(self, request_id: str) -> None:
        """Forget a row."""
        self._rows.pop(request_id, None)
