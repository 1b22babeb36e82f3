"""Weights in fewer bits than the activations they multiply.

A `QuantizedWeight` stands where a floating-point weight stood: `linear` multiplies by its codes,
and whatever else is done with it sees the weight in floating point, so that it is right for every
denoiser and fast for those that use `linear`. Shapes: O outputs, I inputs; a weight is [O, I], or
[E, O, I] where it stacks experts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils._pytree import tree_map_only

SMALLEST = 2**14
"""Weights of fewer values are not worth it."""


class QuantizedWeight(Tensor):
    """Looks like a weight of `dtype`, that of the activations."""

    @abstractmethod
    def project(self, inputs: Tensor, bias: Tensor | None) -> Tensor:
        """Outputs [..., O] of inputs [..., I], for a weight [O, I]."""

    @abstractmethod
    def dequantized(self) -> Tensor:
        """The weight in floating point."""

    @abstractmethod
    def store(self, weight: Tensor) -> QuantizedWeight:
        """Quantise a weight of this shape into it."""

    @abstractmethod
    def pick(self, index: int | slice) -> QuantizedWeight | None:
        """A view of one expert, of some of them or of some outputs; `None`: there is none."""

    @abstractmethod
    def joined(self, weights: Sequence[QuantizedWeight]) -> QuantizedWeight | None:
        """Weights of this kind one under another, this one the first of them."""

    @abstractmethod
    def same(self) -> QuantizedWeight:
        """Another handle to the same codes."""

    @abstractmethod
    def bytes(self) -> int:
        """What it takes in memory."""

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        answer = _OWN.get(func, _in_floating_point)(*args, **(kwargs or {}))
        if answer is not NotImplemented and answer is not None:
            return answer
        # without this, floating-point answers would be made members of this class
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub gives it no class
        cls,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch.ops.aten.detach.default:
            return args[0].same()
        plain = tree_map_only(QuantizedWeight, lambda weight: weight.dequantized(), args)
        return func(*plain, **(kwargs or {}))


def _in_floating_point(*args: Any, **kwargs: Any) -> Any:
    return None


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if isinstance(inputs, QuantizedWeight) or not isinstance(weight, QuantizedWeight):
        return None
    return weight.project(inputs, bias)


def _copy(target: Tensor, weight: Tensor, non_blocking: bool = False) -> Any:
    if isinstance(weight, QuantizedWeight) or not isinstance(target, QuantizedWeight):
        return None
    return target.store(weight)


def _narrow(weight: QuantizedWeight, dim: int, start: int, length: int) -> Any:
    return weight.pick(slice(start, start + length)) if dim == 0 else None


def _item(weight: Tensor, index: Any) -> Any:
    if isinstance(index, Tensor) and index.ndim == 0:
        index = int(index)  # of an expert: transformers counts them in tensors
    simple = isinstance(index, slice) or (isinstance(index, int) and weight.ndim == 3)
    return weight.pick(index) if isinstance(weight, QuantizedWeight) and simple else None


def _cat(weights: Sequence[Tensor], dim: int = 0) -> Any:
    parts = [weight for weight in weights if isinstance(weight, QuantizedWeight)]
    alike = len(parts) == len(weights) and len({type(part) for part in parts}) == 1
    return parts[0].joined(parts) if alike and dim == 0 else None


_OWN: dict[Callable[..., Any], Callable[..., Any]] = {
    linear: _linear,
    torch.cat: _cat,
    Tensor.copy_: _copy,
    Tensor.narrow: _narrow,
    Tensor.__getitem__: _item,
}
"""What is done to the codes; all else is done to the weight in floating point."""


def quantizable(module: nn.Module) -> set[str]:
    """Keys of the weights worth quantising: those of large linear layers and stacked experts.

    Embeddings, the output head (the most sensitive, often tied to them) and routers stay.
    """
    head = _head(module)
    keys = set()
    for name, part in module.named_modules():
        for own, parameter in part.named_parameters(recurse=False):
            matrix = isinstance(part, nn.Linear) and part is not head and own == "weight"
            if (matrix or parameter.ndim == 3) and parameter.numel() >= SMALLEST:
                keys.add(f"{name}.{own}" if name else own)
    return keys - _tied(module)


def run_experts_one_by_one(module: nn.Module) -> None:
    """Have stacked experts multiplied by `linear`; transformers' other ways need all of them in
    floating point at once.
    """
    for part in module.modules():
        config: Any = getattr(part, "config", None)
        if hasattr(config, "_experts_implementation"):
            config._experts_implementation = "eager"


def _head(module: nn.Module) -> nn.Module | None:
    get = getattr(module, "get_output_embeddings", None)
    return get() if get is not None else None


def _tied(module: nn.Module) -> set[str]:
    """Keys of parameters that are one object under several keys."""
    keys: dict[int, list[str]] = {}
    for key, parameter in module.named_parameters(remove_duplicate=False):
        keys.setdefault(id(parameter), []).append(key)
    return {key for group in keys.values() if len(group) > 1 for key in group}
