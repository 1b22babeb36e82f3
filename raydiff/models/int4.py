"""Weight-only int4 by torchao, which is optional: four bits a weight, a scale and a zero point for
each group of inputs.

Matrices only: stacked experts, and matrices whose inputs make no whole groups, are kept in int8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from raydiff.errors import ModelError, invalid
from raydiff.models.quantized import QuantizedWeight

GROUPS = (128, 64, 32)
"""Inputs that share a scale; the first that divides their number."""


class Int4Weight(QuantizedWeight):
    """torchao's tensors of a weight [O, I], one under another."""

    packed: tuple[Tensor, ...]

    @staticmethod
    def __new__(
        cls,
        packed: tuple[Tensor, ...],
        shape: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
    ) -> Int4Weight:
        made: Int4Weight = Tensor._make_wrapper_subclass(
            cls, tuple(shape), dtype=dtype, device=device
        )
        made.packed = packed
        return made

    @classmethod
    def empty(cls, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Int4Weight:
        """Room for a weight, which must be stored in one piece."""
        return cls((), shape, dtype, device)

    def dequantized(self) -> Tensor:
        """See `QuantizedWeight.dequantized`."""
        # torchao's packed forms differ between devices and only multiply
        ones = torch.eye(self.shape[1], dtype=self.dtype, device=self.device)
        return self.project(ones, None).T.contiguous()

    def store(self, weight: Tensor) -> Int4Weight:
        """See `QuantizedWeight.store`."""
        assert weight.shape == self.shape, "an int4 weight is stored in one piece"
        self.packed = (pack(weight.to(self.device, self.dtype)),)
        return self

    def project(self, inputs: Tensor, bias: Tensor | None) -> Tensor:
        """See `QuantizedWeight.project`."""
        outputs = torch.cat([linear(inputs, part) for part in self.packed], dim=-1)
        return outputs if bias is None else outputs + bias

    def pick(self, index: int | slice) -> Int4Weight | None:
        """See `QuantizedWeight.pick`: whole parts of a joined weight only."""
        starts = [0]
        for part in self.packed:
            starts.append(starts[-1] + part.shape[0])
        if not isinstance(index, slice) or not self.packed:
            return None
        start, stop, step = index.indices(self.shape[0])
        if step != 1 or start not in starts or stop not in starts:
            return None
        parts = self.packed[starts.index(start) : starts.index(stop)]
        return Int4Weight(parts, (stop - start, self.shape[1]), self.dtype, self.device)

    def joined(self, weights: Sequence[QuantizedWeight]) -> Int4Weight:
        """See `QuantizedWeight.joined`."""
        parts = [weight for weight in weights if isinstance(weight, Int4Weight)]
        shape = (sum(part.shape[0] for part in parts), self.shape[1])
        packed = tuple(tensor for part in parts for tensor in part.packed)
        return Int4Weight(packed, shape, self.dtype, self.device)

    def same(self) -> Int4Weight:
        """See `QuantizedWeight.same`."""
        return Int4Weight(self.packed, self.shape, self.dtype, self.device)

    def bytes(self) -> int:
        """See `QuantizedWeight.bytes`: the codes, and two values of 16 bits for each group."""
        group = group_size(self.shape)
        assert group is not None
        return self.shape.numel() // 2 + self.shape.numel() // group * 4


def group_size(shape: Sequence[int]) -> int | None:
    """Inputs that share a scale in a weight of this shape; `None` where int4 cannot hold it."""
    if len(shape) != 2:
        return None
    return next((size for size in GROUPS if shape[1] % size == 0), None)


def pack(weight: Tensor) -> Tensor:
    """torchao's tensor of a weight."""
    from torchao.quantization import quantize_

    outputs, inputs = weight.shape
    layer = nn.Linear(inputs, outputs, bias=False, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    group = group_size(weight.shape)
    quantize_(layer, _config(group or inputs, weight.device))
    return layer.weight.detach()


def require_int4(device: torch.device, dtype: torch.dtype) -> None:
    """Refuse int4 unless torchao is installed and runs it on a device.

    Raises:
        ModelError: it is not or does not.
    """
    try:
        linear(
            torch.ones(1, 1024, dtype=dtype, device=device),
            pack(torch.ones(128, 1024, dtype=dtype, device=device)),
        )
    except ModuleNotFoundError as error:
        raise ModelError(
            invalid(
                "dtype",
                expected="a dtype that this installation runs",
                got="int4",
                remedy=f"It needs {error.name}: pip install 'raydiff[int4]', or choose int8.",
            )
        ) from error
    except Exception as error:  # each kind of device refuses in its own way
        raise ModelError(
            invalid(
                "dtype",
                expected=f"a dtype that torchao runs on {device}",
                got="int4",
                remedy=f"Choose int8. torchao says: {error}",
            )
        ) from error


def _config(group: int, device: torch.device) -> Any:
    if device.type == "cpu":
        from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig

        return PrototypeInt4WeightOnlyConfig(group_size=group, set_inductor_config=False)
    from torchao.quantization import Int4WeightOnlyConfig

    return Int4WeightOnlyConfig(
        group_size=group, int4_packing_format="tile_packed_to_4d", set_inductor_config=False
    )
