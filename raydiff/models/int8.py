"""Weight-only int8: one byte a weight and one scale per output channel, symmetric about zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from raydiff.models.quantized import QuantizedWeight

STEPS = 127
"""Largest code: -128 is left out, so that the range is symmetric."""
CHUNK_VALUES = 2**20
"""Most weights in fp32 at once."""


class Int8Weight(QuantizedWeight):
    """Codes [..., O, I] in int8 and fp32 scales [..., O]."""

    codes: Tensor
    scales: Tensor

    @staticmethod
    def __new__(cls, codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Int8Weight:
        made: Int8Weight = Tensor._make_wrapper_subclass(
            cls, codes.shape, dtype=dtype, device=codes.device
        )
        made.codes, made.scales = codes, scales
        return made

    @classmethod
    def empty(cls, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Int8Weight:
        """Room for a weight, which may be stored part by part."""
        codes = torch.empty(tuple(shape), dtype=torch.int8, device=device)
        scales = torch.empty(tuple(shape[:-1]), dtype=torch.float32, device=device)
        return cls(codes, scales, dtype)

    def dequantized(self) -> Tensor:
        """See `QuantizedWeight.dequantized`."""
        return (self.codes * self.scales.unsqueeze(-1)).to(self.dtype)

    def store(self, weight: Tensor) -> Int8Weight:
        """See `QuantizedWeight.store`. The largest magnitude of an output's weights becomes 127."""
        rows = weight.reshape(-1, weight.shape[-1])
        codes, scales = self.codes.view(rows.shape), self.scales.view(rows.shape[0])
        step = max(1, CHUNK_VALUES // rows.shape[1])
        for start in range(0, rows.shape[0], step):
            part = slice(start, start + step)
            _quantize(rows[part].to(self.device, torch.float32), codes[part], scales[part])
        return self

    def project(self, inputs: Tensor, bias: Tensor | None) -> Tensor:
        """See `QuantizedWeight.project`."""
        if inputs.dtype == torch.float16:  # sums of codes would overflow it
            return linear(inputs, self.dequantized(), bias)
        # codes are exact in bf16 and fp32; scaling outputs is less work than scaling weights
        outputs = linear(inputs, self.codes.to(inputs.dtype)) * self.scales.to(inputs.dtype)
        return outputs if bias is None else outputs + bias

    def pick(self, index: int | slice) -> Int8Weight:
        """See `QuantizedWeight.pick`."""
        return self._over(lambda tensor: tensor[index])

    def joined(self, weights: Sequence[QuantizedWeight]) -> Int8Weight:
        """See `QuantizedWeight.joined`."""
        parts = [weight for weight in weights if isinstance(weight, Int8Weight)]
        codes = torch.cat([part.codes for part in parts])
        return Int8Weight(codes, torch.cat([part.scales for part in parts]), self.dtype)

    def same(self) -> Int8Weight:
        """See `QuantizedWeight.same`."""
        return self._over(Tensor.detach)

    def bytes(self) -> int:
        """See `QuantizedWeight.bytes`."""
        return self.codes.nbytes + self.scales.nbytes

    def _over(self, view: Callable[[Tensor], Tensor]) -> Int8Weight:
        return Int8Weight(view(self.codes), view(self.scales), self.dtype)


def _quantize(weight_RI: Tensor, codes_RI: Tensor, scales_R: Tensor) -> None:
    scales_R.copy_(weight_RI.abs().amax(dim=-1) / STEPS)
    # an output without weights has no scale of its own
    divisors_R = scales_R.masked_fill(scales_R == 0, 1.0)
    codes_RI.copy_((weight_RI / divisors_R.unsqueeze(-1)).round_())
